"""Consistent hashing: the same session or prompt head goes to the same replica while it is there."""

from __future__ import annotations

import math
from typing import ClassVar

import xxhash

from policies.routing.plain import ATTEMPTS
from policies.routing.registry import Case, PolicySpec, Ranking


class ConsistentHashSpec(PolicySpec):
    """`balance`: skip a replica that has more than this times the mean exchanges in flight; 0 never skips."""

    looks_up: ClassVar[bool] = True

    balance: float = 1.25


class ConsistentHash:
    """Weighted rendezvous hashing with bounded load: a replica that leaves moves only its own keys."""

    __slots__ = ("_spec",)

    def __init__(self, spec: ConsistentHashSpec) -> None:
        self._spec = spec

    def rank(self, case: Case) -> Ranking:
        """Rows by falling score of (key, replica), overloaded ones last."""
        slate, view = case.slate, case.view
        key = case.request.session or case.request.prefix_key or case.rng.randrange(1 << 62)
        weights = slate.weights
        scored = sorted(
            ((_score(f"{key}:{view.replicas[row].id}", weights[place]), row) for place, row in enumerate(slate.rows)),
            reverse=True,
        )
        rows = [row for _, row in scored]
        if self._spec.balance:
            exchanges = view.table.exchanges
            limit = math.ceil(self._spec.balance * (sum([exchanges[row] for row in rows]) + 1.0) / len(rows))
            rows.sort(key=lambda row: exchanges[row] >= limit)
        return Ranking(rows[:ATTEMPTS])


def _score(text: str, weight: float) -> float:
    """Weighted rendezvous score: -weight / ln(u) with u uniform in (0, 1)."""
    unit = (xxhash.xxh3_64_intdigest(text.encode()) + 1) / (2**64 + 2)
    return -weight / math.log(unit)
