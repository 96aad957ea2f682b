"""The fleet as cost policies count it: numpy columns, aligned with the rows of the newest snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.contracts import TIERS, FleetSnapshot, Load, LoadTable, Replica
from policies.cost_model.columns import At, Col, Floats, Ints
from policies.cost_model.model import CostModel
from policies.inflight import PeerTable
from policies.others import Others
from policies.routing.backlog import Backlog
from policies.routing.view import Slate

ADAPTERS_KEPT = 256
FRESH_S = 0.05  # how long a look at others' load serves: it is seconds old anyhow


@dataclass(frozen=True, slots=True)
class SlateColumns:
    """A slate of n candidates, and what nobody learns of them."""

    model: Floats  # the cost model's columns that this was made from
    at: At  # its rows, in the cheapest way to pick them
    count: NDArray[np.intp]  # n
    places: NDArray[np.intp]  # 0, 1, 2 ..., (n,)
    place: Mapping[int, int]  # of each row
    preference: Ints
    rows: NDArray[np.intp]  # (4, n), the same for every tier
    loads_all: NDArray[np.bool_] | None  # (n,): cannot be told which tiers to load; None: all can
    fewest_slots: float


def slate_columns(slate: Slate, model: CostModel) -> SlateColumns:
    """Columns of a slate; made once per fleet."""
    columns = slate.columns
    if columns is None or columns.model is not model.columns:
        rows, figures = np.array(slate.rows, dtype=np.intp), model.columns
        gapless = slate.rows == tuple(range(slate.rows[0], slate.rows[0] + len(rows)))
        loads_all = figures[Col.OBEYS, rows] <= 0.0
        columns = slate.columns = SlateColumns(
            figures,
            slice(slate.rows[0], slate.rows[0] + len(rows)) if gapless else rows,
            np.array(len(rows)),
            np.arange(len(rows)),
            {row: place for place, row in enumerate(slate.rows)},
            np.array(slate.preferences, dtype=np.int64),
            np.tile(rows, (len(TIERS), 1)),
            loads_all if loads_all.any() else None,
            float(figures[Col.SLOTS, rows].min()),
        )
    return columns


class FleetColumns:
    """What is under way and what was learned, for all replicas at once. Owned by one router."""

    __slots__ = (
        "_lacking",
        "_others",
        "_others_at_s",
        "_others_now",
        "_peer_loads",
        "_peer_version",
        "_peers",
        "_replicas",
        "_rows",
        "_snapshot",
        "_table",
        "backlog",
        "context_tokens",
        "cost_model",
        "exchanges",
        "prefill_tokens",
    )

    def __init__(self, cost_model: CostModel, peers: PeerTable | None = None) -> None:
        """`peers` is what other gateways tell of themselves; without it engines' own reports must do."""
        self.cost_model = cost_model
        self.backlog = Backlog()
        self._snapshot: FleetSnapshot | None = None
        self._replicas: tuple[Replica, ...] = ()
        self._rows: dict[str, int] = {}
        self._peers = PeerTable() if peers is None else peers
        self._peer_version = -1
        self._peer_loads: Floats = np.zeros((3, 0))
        self._others = Others.nothing(0)
        self._others_at_s = -1.0
        self._others_now: Floats = np.zeros((3, 0))
        self._lacking: dict[str, NDArray[np.bool_]] = {}  # LoRA adapter -> rows that have not loaded it
        self._adopt_table(LoadTable(0))

    def follow(self, snapshot: FleetSnapshot, now_s: float) -> None:
        """Take over a snapshot, and let what was learned relax. Cheap when it is the same object as before."""
        if snapshot is not self._snapshot:
            if snapshot.table is not self._table:
                self._adopt_table(snapshot.table)
            self._adopt_loads(snapshot.replicas, self._replicas)
            self._others_at_s = -1.0
            self._lacking.clear()
            self._replicas, self._snapshot = snapshot.replicas, snapshot
            self.cost_model.align(snapshot, now_s)
            self.backlog.align(snapshot)
        self.cost_model.tick(now_s)

    def in_flight(self, now_s: float) -> Floats:
        """Exchanges, waiting prefill tokens and context tokens under way, shape (3, rows).

        Ours now, plus others' by the better informed of two sources: their gateways, or the engines' last reports.
        """
        if now_s - self._others_at_s > FRESH_S or self._peer_version != self._peers.version:
            others = self._others
            reported = np.stack((others.exchanges, others.prefill_tokens, others.context_tokens))
            self._others_now = np.maximum(reported * others.trust(now_s), self._heard_of_peers())
            self._others_at_s = now_s
        out: Floats = np.array((self.exchanges, self.prefill_tokens, self.context_tokens), dtype=np.float64)
        out += self._others_now
        return out

    def lacks_adapter(self, adapter: str) -> NDArray[np.bool_]:
        """Which rows would have to load a LoRA adapter first, (rows,)."""
        lacks = self._lacking.get(adapter)
        if lacks is None:
            if len(self._lacking) >= ADAPTERS_KEPT:
                self._lacking.clear()
            lacks = np.array([adapter not in replica.adapters for replica in self._replicas], dtype=bool)
            self._lacking[adapter] = lacks
        return lacks

    def row(self, replica_id: str) -> int:
        """Row of a replica, -1 when it is not here."""
        return self._rows.get(replica_id, -1)

    def _adopt_table(self, table: LoadTable) -> None:
        self._table = table
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
            out = np.zeros((3, len(self._replicas)))
            for row, replica in enumerate(self._replicas):
                load = totals.get(replica.id)
                if load is not None:
                    out[:, row] = load.exchanges, load.prefill_tokens, load.context_tokens
            self._peer_loads, self._peer_version = out, self._peers.version
        return self._peer_loads


def _same_ids(new: tuple[Replica, ...], old: tuple[Replica, ...]) -> bool:
    return len(new) == len(old) and all(a.id == b.id for a, b in zip(new, old, strict=True))
