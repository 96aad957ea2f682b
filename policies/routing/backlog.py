"""Work that was sent and is not done yet, as times at which each server of a queue becomes free."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from backends.contracts import FleetSnapshot
from policies.cost_model.columns import At, Floats

PREFILL, HOST, FS, REMOTE = range(4)
LATE_SHARE: Final = np.array(0.25)  # of prefill still unfinished after its expected end, this much counts as ahead


class Backlog:
    """One FIFO per replica for prefill and for its host link, one per host for files. Times are monotonic milliseconds.

    Charged at dispatch with predicted times, so a burst queues before any engine has reported it.
    """

    __slots__ = ("_free_ms", "_hosts", "_ids", "_rows", "_tiers_free_ms")

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._ids: tuple[str, ...] = ()
        # When each server is free, (4, rows): prefill, then the lower tiers. Host and remote blocks come over the same
        # link, and all replicas of a host have the same reader of files.
        self._free_ms: Floats = np.zeros((4, 0))
        self._tiers_free_ms = 0.0  # no tier queue is longer than this
        self._hosts: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # a number for each row's host

    def align(self, snapshot: FleetSnapshot) -> None:
        """Follow the fleet; what was charged to replicas that stay is kept."""
        ids = tuple([replica.id for replica in snapshot.replicas])
        if ids == self._ids:
            return
        numbers: dict[str, int] = {}
        hosts = [numbers.setdefault(urlsplit(r.url).hostname or r.id, len(numbers)) for r in snapshot.replicas]
        free_ms, readers = np.zeros((4, len(ids))), np.zeros(len(numbers))
        for row, replica_id in enumerate(ids):
            old = self._rows.get(replica_id)
            if old is not None:
                free_ms[:, row] = self._free_ms[:, old]
                readers[hosts[row]] = self._free_ms[FS, old]
        self._hosts = np.array(hosts, dtype=np.intp)
        free_ms[FS] = readers[self._hosts]
        self._free_ms = free_ms
        self._ids, self._rows = ids, {replica_id: row for row, replica_id in enumerate(ids)}

    def prefill_ms(self, at: At, in_flight_ms: Floats, now_s: float) -> Floats:
        """Prefill ahead of a newcomer: never more than is in flight, and a late rest when it should be done."""
        ahead = self._free_ms[PREFILL, at] - 1e3 * now_s
        out: Floats = np.minimum(in_flight_ms, np.maximum(ahead, LATE_SHARE * in_flight_ms))
        return out

    def tiers_ms(self, at: At, now_s: float) -> Floats | None:
        """Restores ahead of a newcomer on each lower tier, (3, n); None when all are free."""
        now_ms = 1e3 * now_s
        if self._tiers_free_ms <= now_ms:
            return None
        out: Floats = np.maximum(self._free_ms[HOST:, at] - now_ms, 0.0)
        return out

    def charge(self, row: int, now_s: float, *, prefill_ms: float, link_ms: float, fs_ms: float) -> None:
        """Count one dispatch."""
        free, now_ms = self._free_ms, 1e3 * now_s
        free[PREFILL, row] = max(now_ms, free.item(PREFILL, row)) + prefill_ms
        if link_ms:
            free[HOST, row] = free[REMOTE, row] = until = max(now_ms, free.item(HOST, row)) + link_ms
            self._tiers_free_ms = max(self._tiers_free_ms, until)
        if fs_ms:
            until = max(now_ms, free.item(FS, row)) + fs_ms
            free[FS, self._hosts == self._hosts[row]] = until
            self._tiers_free_ms = max(self._tiers_free_ms, until)
