"""The fleet as numpy columns: the part of a snapshot that changes seldom, kept between decisions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.contracts import FleetSnapshot, Load, LoadTable, Replica, ReplicaState
from policies.routing.request import PoolShare

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SLATES_KEPT = 256


@dataclass(frozen=True, slots=True)
class Slate:
    """The replicas a request may go to: READY, of its pools, in the model's order of pools."""

    rows: tuple[int, ...]
    index: NDArray[np.intp]  # the same rows
    weight: Floats  # of the row's pool
    preference: Ints  # place of the row's pool in the model's order, 0 first

    def __len__(self) -> int:
        return len(self.rows)


class FleetView:
    """Columns of the newest snapshot seen. Follows snapshots by `refresh`; owned by one router."""

    __slots__ = (
        "_slates",
        "_snapshot",
        "context_tokens",
        "exchanges",
        "kv_capacity",
        "kv_used",
        "prefill_tokens",
        "replicas",
        "reported_at_s",
        "running",
        "waiting",
        "waiting_tokens",
    )

    def __init__(self) -> None:
        self._snapshot: FleetSnapshot | None = None
        self._slates: dict[tuple[PoolShare, ...], Slate] = {}
        self.replicas: tuple[Replica, ...] = ()
        self._adopt_table(LoadTable(0))
        self._adopt_loads((), ())

    def refresh(self, snapshot: FleetSnapshot) -> bool:
        """Take over a snapshot; True when it differs from the last one. Cheap when it is the same object."""
        if snapshot is self._snapshot:
            return False
        old, replicas = self._snapshot, snapshot.replicas
        if old is None or old.table is not snapshot.table:
            self._adopt_table(snapshot.table)
        self._adopt_loads(replicas, self.replicas)
        if not _same_places(replicas, self.replicas):
            self._slates.clear()
        self.replicas, self._snapshot = replicas, snapshot
        return True

    def slate(self, pools: tuple[PoolShare, ...]) -> Slate:
        """READY replicas of `pools`; made once per set of pools and fleet state."""
        slate = self._slates.get(pools)
        if slate is None:
            if len(self._slates) >= SLATES_KEPT:
                self._slates.clear()
            slate = self._slates[pools] = self._build(pools)
        return slate

    def without(self, slate: Slate, excluded: frozenset[str]) -> Slate:
        """The slate less some replica ids."""
        keep = np.array([self.replicas[row].id not in excluded for row in slate.rows], dtype=bool)
        index = slate.index[keep]
        return Slate(tuple(index.tolist()), index, slate.weight[keep], slate.preference[keep])

    def _build(self, pools: tuple[PoolShare, ...]) -> Slate:
        places = {pool.name: (place, pool.weight) for place, pool in enumerate(pools)}
        chosen = sorted(
            (places[replica.pool][0], row)
            for row, replica in enumerate(self.replicas)
            if replica.pool in places and replica.state is ReplicaState.READY
        )
        rows = tuple(row for _, row in chosen)
        return Slate(
            rows=rows,
            index=np.array(rows, dtype=np.intp),
            weight=np.array([places[self.replicas[row].pool][1] for row in rows], dtype=np.float64),
            preference=np.array([place for place, _ in chosen], dtype=np.int64),
        )

    def _adopt_table(self, table: LoadTable) -> None:
        self.exchanges: Ints = np.frombuffer(table.exchanges, dtype=np.int64)
        self.prefill_tokens: Ints = np.frombuffer(table.prefill_tokens, dtype=np.int64)
        self.context_tokens: Ints = np.frombuffer(table.context_tokens, dtype=np.int64)

    def _adopt_loads(self, new: tuple[Replica, ...], old: tuple[Replica, ...]) -> None:
        if not new or len(new) != len(old):
            self._allocate(len(new))
            old = ()
        known: tuple[Load | None, ...] = tuple(replica.load for replica in old) or (None,) * len(new)
        for row, replica in enumerate(new):
            load = replica.load
            if load is known[row]:
                continue
            self.running[row] = load.running
            self.waiting[row] = load.waiting
            self.waiting_tokens[row] = load.waiting_uncached_tokens
            self.kv_used[row] = load.kv_used
            self.kv_capacity[row] = load.kv_capacity_tokens
            self.reported_at_s[row] = load.at_s

    def _allocate(self, rows: int) -> None:
        self.running: Ints = np.zeros(rows, dtype=np.int64)
        self.waiting: Ints = np.zeros(rows, dtype=np.int64)
        self.waiting_tokens: Ints = np.zeros(rows, dtype=np.int64)
        self.kv_capacity: Ints = np.zeros(rows, dtype=np.int64)
        self.kv_used: Floats = np.zeros(rows)
        self.reported_at_s: Floats = np.zeros(rows)


def _same_places(new: tuple[Replica, ...], old: tuple[Replica, ...]) -> bool:
    return len(new) == len(old) and all(a.id == b.id and a.state is b.state for a, b in zip(new, old, strict=True))
