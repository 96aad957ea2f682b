"""Work that was sent and is not done yet, as times at which each server of a queue becomes free."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from backends.contracts import FleetSnapshot
from policies.cost_model.columns import At, Floats

LATE_SHARE: Final = 0.25  # prefill still unfinished after its expected end: count this much of it as still ahead


class Backlog:
    """One FIFO per replica for prefill and for its host link, one per host for files. Times are monotonic seconds.

    Charged at dispatch with predicted times, so a burst queues before any engine has reported it.
    """

    __slots__ = ("_fs_free", "_hosts", "_ids", "_link_free", "_prefill_free", "_rows", "_tiers_free_s")

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._ids: tuple[str, ...] = ()
        self._prefill_free: Floats = np.zeros(0)
        self._link_free: Floats = np.zeros(0)
        self._fs_free: Floats = np.zeros(0)
        self._tiers_free_s = 0.0  # no tier queue is longer than this
        self._hosts: NDArray[np.intp] = np.zeros(0, dtype=np.intp)  # row -> place in _fs_free

    def align(self, snapshot: FleetSnapshot) -> None:
        """Follow the fleet; what was charged to replicas that stay is kept."""
        ids = tuple([replica.id for replica in snapshot.replicas])
        if ids == self._ids:
            return
        prefill, link, fs = np.zeros(len(ids)), np.zeros(len(ids)), np.zeros(len(ids))
        numbers: dict[str, int] = {}
        hosts = [numbers.setdefault(urlsplit(r.url).hostname or r.id, len(numbers)) for r in snapshot.replicas]
        for row, replica_id in enumerate(ids):
            old = self._rows.get(replica_id)
            if old is not None:
                prefill[row], link[row] = self._prefill_free[old], self._link_free[old]
                fs[hosts[row]] = self._fs_free[self._hosts[old]]
        self._prefill_free, self._link_free, self._fs_free = prefill, link, fs
        self._hosts = np.array(hosts, dtype=np.intp)
        self._ids, self._rows = ids, {replica_id: row for row, replica_id in enumerate(ids)}

    def prefill_ms(self, at: At, in_flight_ms: Floats, now_s: float) -> Floats:
        """Prefill ahead of a newcomer: never more than is in flight, and a late rest when it should be done."""
        ahead: Floats = (self._prefill_free[at] - now_s) * 1e3
        return np.minimum(in_flight_ms, np.maximum(ahead, LATE_SHARE * in_flight_ms))

    def tier_ms(self, at: At, now_s: float) -> Floats | None:
        """Restores ahead of a newcomer on each lower tier, (3, n); None when all are free.

        Host and remote blocks come over the replica's own host link, files through its host's one reader.
        """
        if self._tiers_free_s <= now_s:
            return None
        link = np.maximum(self._link_free[at] - now_s, 0.0) * 1e3
        files = np.maximum(self._fs_free[self._hosts[at]] - now_s, 0.0) * 1e3
        return np.stack((link, files, link))

    def charge(self, row: int, now_s: float, *, prefill_ms: float, link_ms: float, fs_ms: float) -> None:
        """Count one dispatch."""
        self._prefill_free[row] = max(now_s, float(self._prefill_free[row])) + prefill_ms / 1e3
        if link_ms:
            self._link_free[row] = until = max(now_s, float(self._link_free[row])) + link_ms / 1e3
            self._tiers_free_s = max(self._tiers_free_s, until)
        if fs_ms:
            host = self._hosts[row]
            self._fs_free[host] = until = max(now_s, float(self._fs_free[host])) + fs_ms / 1e3
            self._tiers_free_s = max(self._tiers_free_s, until)
