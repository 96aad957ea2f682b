"""From costs to an order: best first, near-equals by chance, and a preferred pool until it is too slow."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.contracts import Random
from policies.cost_model.columns import Floats
from policies.routing.columns import SlateColumns
from policies.routing.plain import ATTEMPTS
from policies.routing.request import PoolShare, RouteRequest

SPILL_STATES_KEPT: Final = 1024


def cheapest(cost: Floats, weight: Floats, rng: Random, *, near_ms: float, near_share: float) -> NDArray[np.intp]:
    """Places by rising cost, at most ATTEMPTS. The first is drawn by weight from those nearly as cheap as the best.

    Several gateways that see the same idle replica would otherwise all send to it before any load report arrives.
    """
    if cost.size > ATTEMPTS:
        part = np.argpartition(cost, ATTEMPTS)[:ATTEMPTS]
        order = part[np.argsort(cost[part], kind="stable")]
    else:
        order = np.argsort(cost, kind="stable")
    sorted_cost = cost[order]
    best = float(sorted_cost[0])
    near = int(np.searchsorted(sorted_cost, best + max(near_ms, near_share * abs(best)), side="right"))
    if near > 1:
        shares = np.cumsum(weight[order[:near]])
        drawn = int(np.searchsorted(shares, rng.random() * shares[-1], side="right"))
        if drawn:
            order[: drawn + 1] = np.roll(order[: drawn + 1], 1)
    return order


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
