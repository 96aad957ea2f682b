"""A reference that no product can be: it reads the simulators' own caches, queues and clocks, and picks the minimum."""

from __future__ import annotations

from backends.simulator.requests import SimRequest
from gateway.replay.world import World
from policies.routing.registry import Case, PolicySpec, Ranking, Registry


class OracleSpec(PolicySpec):
    """No tunables."""


class Oracle:
    """Sends each request where its first token would come soonest, were nothing else to arrive."""

    def __init__(self, world: World) -> None:
        self._world = world

    def rank(self, case: Case) -> Ranking:
        request = case.request
        full = request.prompt_tokens // self._world.block_tokens
        probe = SimRequest("probe", request.prompt_tokens, request.output_tokens, tuple(request.chain[:full]))
        now = case.now_s
        costs = [(self._world.engines[row].estimate_ttft_s(probe, now), row) for row in case.slate.rows]
        return Ranking([row for _, row in sorted(costs)])


def add_oracle(registry: Registry, world: World) -> None:
    """Make `oracle` known to a registry for one world."""
    registry.register("oracle", OracleSpec(), lambda _: Oracle(world))
