"""Policies that know nothing of caches: for small installations, and to compare with."""

from __future__ import annotations

from collections.abc import Sequence

from policies.routing.registry import Case, PolicySpec, Ranking
from policies.routing.view import FleetView, Slate

ATTEMPTS = 16  # how many replicas a ranking names: enough for every retry


class RoundRobinSpec(PolicySpec):
    """No tunables: pool weights decide."""


class RoundRobin:
    """Smooth weighted round robin: over any stretch each replica gets its share, without bursts."""

    __slots__ = ("_credit",)

    def __init__(self, spec: RoundRobinSpec) -> None:
        del spec
        self._credit: dict[str, float] = {}

    def rank(self, case: Case) -> Ranking:
        """The replica with most credit; everybody earns its weight, the winner pays for all."""
        slate, replicas = case.slate, case.view.replicas
        if len(self._credit) > 4 * len(replicas):
            self._credit.clear()
        weights = slate.weights
        best = 0
        most = float("-inf")
        for place, row in enumerate(slate.rows):
            replica = replicas[row].id
            credit = self._credit[replica] = self._credit.get(replica, 0.0) + weights[place]
            if credit > most:
                most, best = credit, place
        self._credit[replicas[slate.rows[best]].id] -= sum(weights)
        return Ranking(_from(slate.rows, best))


class LeastLoadSpec(PolicySpec):
    """`exchange_tokens`: what one exchange in flight weighs against prompt tokens that wait for prefill."""

    exchange_tokens: int = 512


class LeastLoad:
    """The replica with least work from this gateway per weight; ties by chance."""

    __slots__ = ("_spec",)

    def __init__(self, spec: LeastLoadSpec) -> None:
        self._spec = spec

    def rank(self, case: Case) -> Ranking:
        """Rows by rising load, from a random start so that equals share."""
        slate = case.slate
        start = case.rng.randrange(len(slate))
        loads = _loads(case.view, slate, self._spec.exchange_tokens)
        turned = (*range(start, len(slate)), *range(start))
        order = sorted(turned, key=loads.__getitem__)[:ATTEMPTS]
        return Ranking([slate.rows[place] for place in order])


class TwoChoices:
    """Power of two choices: the less loaded of two random replicas. Herds less than `least_load` across gateways."""

    __slots__ = ("_exchange_tokens",)

    def __init__(self, spec: LeastLoadSpec) -> None:
        self._exchange_tokens = spec.exchange_tokens

    def rank(self, case: Case) -> Ranking:
        """The winner, the loser, then the rest in turn from the winner on."""
        slate = case.slate
        count = len(slate)
        if count == 1:
            return Ranking(slate.rows)
        draw = case.rng.random  # three times as fast as `randrange`
        first = int(draw() * count)
        second = int(draw() * (count - 1))
        second += second >= first
        rows, weights, view = slate.rows, slate.weights, case.view
        each, prefill, exchanges = self._exchange_tokens, view.table.prefill_tokens, view.table.exchanges
        won, lost = rows[first], rows[second]
        load = (prefill[won] + each * exchanges[won]) / weights[first]
        if (prefill[lost] + each * exchanges[lost]) / weights[second] < load:
            won, lost, first = lost, won, second
        if count == 2:
            return Ranking((won, lost))
        rest = [row for row in _from(rows, first)[1:] if row != lost]
        return Ranking([won, lost, *rest][:ATTEMPTS])


def _loads(view: FleetView, slate: Slate, exchange_tokens: int) -> list[float]:
    prefill, exchanges = view.table.prefill_tokens, view.table.exchanges
    return [
        (prefill[row] + exchange_tokens * exchanges[row]) / weight
        for row, weight in zip(slate.rows, slate.weights, strict=True)
    ]


def _from(rows: Sequence[int], start: int) -> Sequence[int]:
    """The rows in turn, beginning at place `start`, at most ATTEMPTS."""
    return [*rows[start : start + ATTEMPTS], *rows[: max(0, min(start, start + ATTEMPTS - len(rows)))]]
