"""From costs to an order: best first, near-equals by chance, and a preferred pool until it is too slow."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Final

from backends.contracts import Random
from policies.cost_model.columns import Floats
from policies.routing.columns import SlateColumns
from policies.routing.plain import ATTEMPTS
from policies.routing.request import PoolShare, RouteRequest

MANY: Final = 128  # candidates from which it pays to look for the best before sorting
SPILL_STATES_KEPT: Final = 1024


def cheapest(
    cost: Floats, weights: Sequence[float], rng: Random, *, near_ms: float, near_share: float
) -> tuple[list[int], float]:
    """Places by rising cost, at most ATTEMPTS, and the cost of the first.

    The first is drawn by weight from those nearly as cheap as the best. Several gateways that see the same idle replica
    would otherwise all send to it before any load report arrives.
    """
    if cost.size > MANY:
        order = cost.argpartition(ATTEMPTS)[:ATTEMPTS]
        order = order[cost.take(order).argsort(kind="stable")]
    else:
        order = cost.argsort(kind="stable")[:ATTEMPTS]
    places: list[int] = order.tolist()
    costs: list[float] = cost.take(order).tolist()
    best, first = costs[0], 0
    near = bisect_right(costs, best + max(near_ms, near_share * abs(best)))
    if near > 1:
        shares = list(accumulate([weights[place] for place in places[:near]]))
        first = bisect_right(shares, rng.random() * shares[-1])
        places.insert(0, places.pop(first))
    return places, costs[first]


class Spill:
    """Keeps a model's traffic on its first pool until that costs `spill_after_ms` more than the best elsewhere.

    Once it spills, it goes on until the first pool is within `spill_back_ms` again, so that it does not flap. Later
    pools stand in the same relation to those after them.
    """

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[tuple[PoolShare, ...], bool] = {}

    def penalty(self, request: RouteRequest, slate: SlateColumns, cost: Floats) -> Floats | None:
        """What to add to each candidate's cost; None when there is only one pool or no preference."""
        if not request.spill_after_ms or slate.preference[-1] == slate.preference[0]:
            return None
        first = slate.preference == slate.preference[0]
        excess = float(cost[first].min() - cost[~first].min())
        if len(self._open) > SPILL_STATES_KEPT:
            self._open.clear()
        key = request.pools
        is_open = excess > (request.spill_back_ms if self._open.get(key) else request.spill_after_ms)
        self._open[key] = is_open
        behind = slate.preference - slate.preference[0]
        added: Floats = behind * (request.spill_back_ms if is_open else request.spill_after_ms)
        return added
