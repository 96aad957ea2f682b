"""The part of a fleet snapshot that changes seldom, kept between decisions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from backends.contracts import FleetSnapshot, LoadTable, Replica, ReplicaState
from policies.routing.request import PoolShare

if TYPE_CHECKING:  # with numpy, which only policies that count costs load
    from policies.routing.columns import SlateColumns

SLATES_KEPT = 256


@dataclass(slots=True, eq=False)
class Slate:
    """The replicas a request may go to: READY, of its pools, in the model's order of pools."""

    rows: tuple[int, ...]
    weights: tuple[float, ...]  # of each row's pool
    preferences: tuple[int, ...]  # place of each row's pool in the model's order, 0 first
    columns: SlateColumns | None = None  # the same as numpy columns, once somebody counts with them

    def __len__(self) -> int:
        return len(self.rows)


class FleetView:
    """The newest snapshot seen, and slates of it. Follows snapshots by `refresh`; owned by one router."""

    __slots__ = ("_slates", "_snapshot", "replicas", "table")

    def __init__(self) -> None:
        self._snapshot: FleetSnapshot | None = None
        self._slates: dict[tuple[PoolShare, ...], Slate] = {}
        self.replicas: tuple[Replica, ...] = ()
        self.table = LoadTable(0)

    def refresh(self, snapshot: FleetSnapshot) -> None:
        """Take over a snapshot. Cheap when it is the same object as before."""
        if snapshot is self._snapshot:
            return
        if not _same_places(snapshot.replicas, self.replicas):
            self._slates.clear()
        self.replicas, self.table, self._snapshot = snapshot.replicas, snapshot.table, snapshot

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
        replicas = self.replicas
        kept = [place for place, row in enumerate(slate.rows) if replicas[row].id not in excluded]
        return Slate(
            tuple([slate.rows[place] for place in kept]),
            tuple([slate.weights[place] for place in kept]),
            tuple([slate.preferences[place] for place in kept]),
        )

    def _build(self, pools: tuple[PoolShare, ...]) -> Slate:
        places = {pool.name: (place, pool.weight) for place, pool in enumerate(pools)}
        chosen = sorted(
            (*places[replica.pool], row)
            for row, replica in enumerate(self.replicas)
            if replica.pool in places and replica.state is ReplicaState.READY
        )
        return Slate(
            tuple([row for _, _, row in chosen]),
            tuple([weight for _, weight, _ in chosen]),
            tuple([place for place, _, _ in chosen]),
        )


def _same_places(new: tuple[Replica, ...], old: tuple[Replica, ...]) -> bool:
    return len(new) == len(old) and all(a.id == b.id and a.state is b.state for a, b in zip(new, old, strict=True))
