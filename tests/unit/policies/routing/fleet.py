"""A fleet, a clock and requests for routing tests."""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, replace

from msgspec import structs

from backends.contracts import Decision, FleetSnapshot, LoadTable, Replica, ReplicaState
from backends.located import Located
from policies.cost_model.facts import PoolFacts
from policies.cost_model.model import CostModel
from policies.routing.builtin import builtin_policies
from policies.routing.request import PoolShare, RouteRequest
from policies.routing.router import Router


@dataclass
class Watch:
    """A clock that stands until told."""

    now_s: float = 100.0

    def monotonic(self) -> float:
        return self.now_s

    def time(self) -> float:
        return self.now_s


def snapshot(pools: Mapping[str, int], *, version: int = 1) -> FleetSnapshot:
    """READY replicas, `pools[name]` of each pool, with idle counters."""
    replicas = tuple(
        Replica(f"{pool}/{number}", pool, f"http://{pool}-{number}:8000", 0, ReplicaState.READY)
        for pool, count in pools.items()
        for number in range(count)
    )
    return of_replicas(replicas, version=version)


def of_replicas(replicas: tuple[Replica, ...], *, version: int = 1, table: LoadTable | None = None) -> FleetSnapshot:
    """A snapshot of these replicas, in this order."""
    placed = tuple(replace(replica, row=row) for row, replica in enumerate(replicas))
    names = dict.fromkeys(replica.pool for replica in placed)
    by_pool = {name: tuple(r for r in placed if r.pool == name) for name in names}
    return FleetSnapshot(version, placed, by_pool, table or LoadTable(len(placed)))


class Desk:
    """A router with everything it needs, over one fleet."""

    def __init__(
        self, pools: Mapping[str, int], facts: Mapping[str, PoolFacts] | None = None, *, policy: str = "p2c"
    ) -> None:
        self.snapshot = snapshot(pools)
        self.clock = Watch()
        self.cost = CostModel(facts)
        self.rng = random.Random(7)
        self.router = Router(builtin_policies(), self.clock, default=policy)
        self.pools = tuple(PoolShare(name) for name in pools)

    def request(self, **changes: object) -> RouteRequest:
        return structs.replace(RouteRequest(self.pools, prompt_tokens=1000), **changes)

    def decide(self, located: Located | None = None, **changes: object) -> Decision:
        return self.router.decide(self.request(**changes), located, self.snapshot, self.cost, self.rng)

    def spread(self, count: int, **changes: object) -> dict[str, int]:
        """How often each replica came first in `count` decisions."""
        hits: dict[str, int] = {}
        for _ in range(count):
            first = self.decide(**changes).order[0].id
            hits[first] = hits.get(first, 0) + 1
        return hits
