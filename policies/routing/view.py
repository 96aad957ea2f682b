"""The fleet as numpy columns: the part of a snapshot that changes seldom, kept between decisions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.contracts import FleetSnapshot, Load, LoadTable, Replica, ReplicaState
from policies.inflight import Others, PeerTable
from policies.routing.request import PoolShare

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

At = slice | NDArray[np.intp]  # picks columns; a slice picks without a copy

SLATES_KEPT = 256
FRESH_S = 0.05  # how long a look at others' load serves: it is seconds old anyhow


@dataclass(frozen=True, slots=True)
class Slate:
    """The replicas a request may go to: READY, of its pools, in the model's order of pools."""

    rows: tuple[int, ...]
    at: At  # the same rows
    weight: Floats  # of the row's pool
    weights: tuple[float, ...]  # the same, for policies that look at single rows
    preference: Ints  # place of the row's pool in the model's order, 0 first
    places: NDArray[np.intp]  # 0, 1, 2 ...

    def __len__(self) -> int:
        return len(self.rows)


class FleetView:
    """Columns of the newest snapshot seen. Follows snapshots by `refresh`; owned by one router."""

    __slots__ = (
        "_lacking",
        "_others",
        "_others_at_s",
        "_others_now",
        "_peer_loads",
        "_peer_version",
        "_peers",
        "_rows",
        "_slates",
        "_snapshot",
        "context_tokens",
        "exchanges",
        "prefill_tokens",
        "replicas",
        "table",
    )

    def __init__(self, peers: PeerTable | None = None) -> None:
        """`peers` is what other gateways tell of themselves; without it engines' own reports must do."""
        self._snapshot: FleetSnapshot | None = None
        self._slates: dict[tuple[PoolShare, ...], Slate] = {}
        self._peers = PeerTable() if peers is None else peers
        self._peer_version = -1
        self._peer_loads: Floats = np.zeros((3, 0))
        self._others = Others.nothing(0)
        self._others_at_s = -1.0
        self._others_now: Floats = np.zeros((3, 0))
        self._rows: dict[str, int] = {}
        self._lacking: dict[str, NDArray[np.bool_]] = {}  # LoRA adapter -> rows that have not loaded it
        self.replicas: tuple[Replica, ...] = ()
        self._adopt_table(LoadTable(0))

    def refresh(self, snapshot: FleetSnapshot) -> bool:
        """Take over a snapshot; True when it differs from the last one. Cheap when it is the same object."""
        if snapshot is self._snapshot:
            return False
        old, replicas = self._snapshot, snapshot.replicas
        if old is None or old.table is not snapshot.table:
            self._adopt_table(snapshot.table)
        self._adopt_loads(replicas, self.replicas)
        self._others_at_s = -1.0
        if not _same_places(replicas, self.replicas):
            self._slates.clear()
        self._lacking.clear()
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
        return _slate(tuple(np.array(slate.rows)[keep].tolist()), slate.weight[keep], slate.preference[keep])

    def in_flight(self, now_s: float) -> Floats:
        """Exchanges, waiting prefill tokens and context tokens under way, shape (3, rows).

        Ours now, plus others' by the better informed of two sources: their gateways, or the engines' last reports.
        """
        if now_s - self._others_at_s > FRESH_S or self._peer_version != self._peers.version:
            others = self._others
            reported = np.stack((others.exchanges, others.prefill_tokens, others.context_tokens))
            self._others_now = np.maximum(reported * others.trust(now_s), self._heard_of_peers())
            self._others_at_s = now_s
        out = self._others_now.copy()
        out[0] += self.exchanges
        out[1] += self.prefill_tokens
        out[2] += self.context_tokens
        return out

    def lacks_adapter(self, adapter: str) -> NDArray[np.bool_]:
        """Which rows would have to load a LoRA adapter first, (rows,)."""
        lacks = self._lacking.get(adapter)
        if lacks is None:
            if len(self._lacking) >= SLATES_KEPT:
                self._lacking.clear()
            lacks = np.array([adapter not in replica.adapters for replica in self.replicas], dtype=bool)
            self._lacking[adapter] = lacks
        return lacks

    def row(self, replica_id: str) -> int:
        """Row of a replica, -1 when it is not here."""
        return self._rows.get(replica_id, -1)

    def _build(self, pools: tuple[PoolShare, ...]) -> Slate:
        places = {pool.name: (place, pool.weight) for place, pool in enumerate(pools)}
        chosen = sorted(
            (places[replica.pool][0], row)
            for row, replica in enumerate(self.replicas)
            if replica.pool in places and replica.state is ReplicaState.READY
        )
        rows = tuple(row for _, row in chosen)
        return _slate(
            rows,
            np.array([places[self.replicas[row].pool][1] for row in rows], dtype=np.float64),
            np.array([place for place, _ in chosen], dtype=np.int64),
        )

    def _adopt_table(self, table: LoadTable) -> None:
        self.table = table
        self.exchanges: Ints = np.frombuffer(table.exchanges, dtype=np.int64)
        self.prefill_tokens: Ints = np.frombuffer(table.prefill_tokens, dtype=np.int64)
        self.context_tokens: Ints = np.frombuffer(table.context_tokens, dtype=np.int64)

    def _adopt_loads(self, new: tuple[Replica, ...], old: tuple[Replica, ...]) -> None:
        if not _same_ids(new, old):
            self._others = Others.nothing(len(new))
            self._rows = {replica.id: row for row, replica in enumerate(new)}
            self._peer_version = -1
            old = ()
        known: tuple[Load | None, ...] = tuple(replica.load for replica in old) or (None,) * len(new)
        for row, replica in enumerate(new):
            load = replica.load
            if load is known[row] or not load.at_s:
                continue
            self._others.hear(
                row, load, int(self.exchanges[row]), int(self.prefill_tokens[row]), int(self.context_tokens[row])
            )

    def _heard_of_peers(self) -> Floats:
        """Totals of other gateways by row, shape (3, rows): exchanges, prefill tokens, context tokens."""
        if self._peer_version != self._peers.version:
            totals = self._peers.totals()
            out = np.zeros((3, len(self.replicas)))
            for row, replica in enumerate(self.replicas):
                load = totals.get(replica.id)
                if load is not None:
                    out[:, row] = load.exchanges, load.prefill_tokens, load.context_tokens
            self._peer_loads, self._peer_version = out, self._peers.version
        return self._peer_loads


def _slate(rows: tuple[int, ...], weight: Floats, preference: Ints) -> Slate:
    gapless = rows == tuple(range(rows[0], rows[0] + len(rows))) if rows else False
    at: At = slice(rows[0], rows[0] + len(rows)) if gapless else np.array(rows, dtype=np.intp)
    return Slate(rows, at, weight, tuple(weight.tolist()), preference, np.arange(len(rows)))


def _same_ids(new: tuple[Replica, ...], old: tuple[Replica, ...]) -> bool:
    return len(new) == len(old) and all(a.id == b.id for a, b in zip(new, old, strict=True))


def _same_places(new: tuple[Replica, ...], old: tuple[Replica, ...]) -> bool:
    return len(new) == len(old) and all(a.id == b.id and a.state is b.state for a, b in zip(new, old, strict=True))
