"""One trace through one routing policy, in virtual time."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from backends.contracts import Decision
from backends.simulator.requests import Progress, SimRequest
from gateway.replay.trace import Arrival, Trace
from gateway.replay.world import World
from policies.cost_model.model import CostModel
from policies.routing.registry import Registry
from policies.routing.request import PoolShare, RouteRequest
from policies.routing.router import Router

Advanced = Callable[[int, int], None]  # exchanges sent, exchanges in all
PROGRESS_EVERY = 64


@dataclass(slots=True)
class Outcome:
    """What became of one arrival. Times in seconds; `row` is -1 when no replica could take it."""

    arrival: Arrival
    row: int = -1
    ttft_s: float = math.nan
    e2e_s: float = math.nan
    predicted_ttft_s: float = math.nan
    cached: tuple[int, int, int] = (0, 0, 0)  # prompt tokens from gpu, host, fs


@dataclass(slots=True)
class _Exchange:
    outcome: Outcome
    decision: Decision
    first_s: float = math.nan
    streams: int = 0
    context: int = 0


@dataclass(slots=True)
class Simulation:
    """Drives a world with a trace. Make one per policy: router, cost model and world all remember."""

    trace: Trace
    world: World
    pools: tuple[PoolShare, ...]
    registry: Registry
    policy: str
    cost_model: CostModel
    seed: int = 1
    expected_output_tokens: int = 256
    spill_after_ms: float = 0.0
    spill_back_ms: float = 0.0
    _open: dict[str, _Exchange] = field(default_factory=dict)
    _homes: dict[str, str] = field(default_factory=dict)

    def run(self, advanced: Advanced | None = None) -> list[Outcome]:
        """Play the whole trace; outcomes in order of arrival."""
        router = Router(self.registry, self.world.clock, default=self.policy)
        rng = random.Random(self.seed)
        outcomes: list[Outcome] = []
        arrivals = self.trace.arrivals
        for number, arrival in enumerate(arrivals):
            self._settle(arrival.at_s)
            outcomes.append(self._send(router, rng, str(number), arrival))
            if advanced is not None and number % PROGRESS_EVERY == 0:
                advanced(number, len(arrivals))
        self._settle(math.inf)
        if advanced is not None:
            advanced(len(arrivals), len(arrivals))
        return outcomes

    def _send(self, router: Router, rng: random.Random, number: str, arrival: Arrival) -> Outcome:
        outcome = Outcome(arrival)
        world = self.world
        full = arrival.prompt_tokens // self.trace.block_tokens
        request = SimRequest(
            number,
            arrival.prompt_tokens,
            arrival.output_tokens,
            arrival.blocks[:full],
            priority=-arrival.priority,  # ours: higher is sooner
        )
        route = RouteRequest(
            pools=self.pools,
            prompt_tokens=arrival.prompt_tokens,
            output_tokens=self.expected_output_tokens,
            priority=arrival.priority,
            tenant=arrival.tenant,
            session=arrival.session,
            home=self._homes.get(arrival.session, "") if arrival.session else "",
            prefix_key=arrival.blocks[0] + 1 if arrival.blocks else 0,
            chain=arrival.blocks,
            spill_after_ms=self.spill_after_ms,
            spill_back_ms=self.spill_back_ms,
            exclude=self._too_small(arrival),
        )
        decision = router.decide(route, world.locate(request), world.snapshot, self.cost_model, rng)
        if not decision.order:
            return outcome
        row = outcome.row = decision.order[0].row
        if decision.expected is not None:
            outcome.predicted_ttft_s = decision.expected.ttft_ms / 1e3
        if decision.load_tiers is not None:
            request = replace(request, load_from=frozenset(decision.load_tiers))
        world.submit(row, request)
        table = world.table
        table.exchanges[row] += 1
        table.prefill_tokens[row] += decision.prefill_tokens
        table.context_tokens[row] += arrival.prompt_tokens
        self._open[number] = _Exchange(outcome, decision)
        if arrival.session:
            self._homes[arrival.session] = decision.order[0].id
        return outcome

    def _too_small(self, arrival: Arrival) -> frozenset[str]:
        tokens = arrival.prompt_tokens + arrival.output_tokens
        replicas = self.world.snapshot.replicas
        return frozenset(
            replicas[row].id
            for row, engine in enumerate(self.world.engines)
            if tokens > min(engine.profile.max_model_len, engine.tiers.pool.capacity * engine.profile.block_tokens)
        )

    def _settle(self, until_s: float) -> None:
        for row, progress in self.world.advance(until_s):
            exchange = self._open[progress.request.id]
            if progress.first:
                self._first_token(row, exchange, progress)
            if progress.finish is not None:
                self._finished(row, exchange, progress)
                del self._open[progress.request.id]

    def _first_token(self, row: int, exchange: _Exchange, progress: Progress) -> None:
        outcome, decision, table = exchange.outcome, exchange.decision, self.world.table
        cached = progress.cached
        outcome.ttft_s = progress.at_s - outcome.arrival.at_s
        outcome.cached = (cached.gpu, cached.host, cached.fs)
        table.prefill_tokens[row] -= decision.prefill_tokens
        exchange.first_s = progress.at_s
        exchange.streams, exchange.context = table.exchanges[row], table.context_tokens[row]
        if decision.expected is not None:
            self.cost_model.late(decision.order[0].id, decision.expected, 1e3 * outcome.ttft_s)

    def _finished(self, row: int, exchange: _Exchange, progress: Progress) -> None:
        outcome, table = exchange.outcome, self.world.table
        outcome.e2e_s = progress.at_s - outcome.arrival.at_s
        decision = exchange.decision
        if decision.expected is not None:  # engines say only at the end what they had cached
            replica, cached, ttft_ms = decision.order[0].id, sum(outcome.cached), 1e3 * outcome.ttft_s
            self.cost_model.first_token(replica, decision.expected, ttft_ms, progress.at_s, cached_tokens=cached)
        steps = outcome.arrival.output_tokens - 1
        if steps > 0:
            streams = (exchange.streams + table.exchanges[row]) / 2
            context = (exchange.context + table.context_tokens[row]) / 2
            pace_ms = 1e3 * (progress.at_s - exchange.first_s) / steps
            self.cost_model.decoded(exchange.decision.order[0].id, pace_ms, streams, context, progress.at_s)
        table.exchanges[row] -= 1
        table.context_tokens[row] -= outcome.arrival.prompt_tokens
