"""A trace through a simulated fleet: complete, exact, repeatable."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gateway.replay.simulation import Outcome, Simulation
from gateway.replay.study import facts_of
from gateway.replay.trace import Arrival, Trace
from gateway.replay.world import World
from policies.cost_model.model import CostModel
from policies.routing.builtin import builtin_policies
from policies.routing.request import PoolShare
from tests.unit.gateway.replay.traffic import POOLS, conversations


def simulate(trace: Trace, policy: str, *, seed: int = 1) -> tuple[list[Outcome], World, CostModel]:
    world = World(POOLS, trace.block_tokens)
    model = CostModel({pool.name: facts_of(pool) for pool in POOLS})
    pools = tuple(PoolShare(pool.name) for pool in POOLS)
    simulation = Simulation(trace, world, pools, builtin_policies(), policy, model, seed=seed)
    return simulation.run(), world, model


@pytest.mark.parametrize("policy", ["round_robin", "p2c", "prefix_text", "latency", "throughput", "cost", "sticky"])
def test_every_exchange_ends_and_all_counters_return_to_zero(policy: str) -> None:
    trace = conversations(20, 4)
    outcomes, world, _ = simulate(trace, policy)
    assert len(outcomes) == len(trace.arrivals)
    assert all(0 < outcome.ttft_s <= outcome.e2e_s for outcome in outcomes)
    table = world.table
    assert sum(table.exchanges) == sum(table.prefill_tokens) == sum(table.context_tokens) == 0
    assert math.isinf(world.next_event_time())
    assert all(0 <= busy <= world.clock.now_s for busy in world.busy_s)


def test_the_same_seed_gives_the_same_replay() -> None:
    trace = conversations(15, 4)
    first, again = simulate(trace, "latency")[0], simulate(trace, "latency")[0]
    assert [(o.row, o.ttft_s, o.e2e_s) for o in first] == [(o.row, o.ttft_s, o.e2e_s) for o in again]


def test_knowing_the_caches_pays() -> None:
    trace = conversations(40, 6, rate=8.0)
    blind = [o.ttft_s for o in simulate(trace, "round_robin")[0]]
    knowing = [o.ttft_s for o in simulate(trace, "latency")[0]]
    assert np.mean(knowing) < 0.8 * np.mean(blind)


def test_predictions_are_close_and_get_compared() -> None:
    outcomes, _, model = simulate(conversations(40, 6), "latency")
    error = [abs(o.predicted_ttft_s - o.ttft_s) / o.ttft_s for o in outcomes]
    assert np.median(error) < 0.2
    assert all(0 <= score.ttft_error < 0.5 for score in model.scores())


def test_a_prompt_that_fits_nowhere_is_refused_and_one_that_fits_somewhere_is_not() -> None:
    long = Arrival(0.0, 600_000, 10)
    longest = Arrival(1.0, 3_000_000, 10)
    outcomes, world, _ = simulate(Trace("long", (long, longest)), "latency")
    assert world.snapshot.replicas[outcomes[0].row].pool == "gb200"
    assert outcomes[1].row == -1
    assert math.isnan(outcomes[1].ttft_s)
