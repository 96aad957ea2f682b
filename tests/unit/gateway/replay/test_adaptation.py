"""Routing notices what nobody told it: a wrong prior, a replica that gets slow and well again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.profiles import Profile, load_profile
from gateway.replay.simulation import Simulation
from gateway.replay.trace import Arrival, Trace
from gateway.replay.world import SimPool, World
from policies.cost_model.facts import PoolFacts
from policies.cost_model.model import CostModel
from policies.routing.builtin import builtin_policies
from policies.routing.request import PoolShare
from tests.bench.routing_traffic import conversations

TRUTH = load_profile("h100-fp8", "vllm")
FOUR = SimPool("p", "vllm", "h100-fp8", tuple(f"http://p{number}:8000" for number in range(4)))


def slower(profile: Profile, factor: float) -> Profile:
    """Everything that computes takes `factor` times as long."""
    return replace(
        profile,
        prefill_step_s=profile.prefill_step_s * factor,
        prefill_us=tuple((tokens, us * factor) for tokens, us in profile.prefill_us),
        decode_base_s=profile.decode_base_s * factor,
        decode_per_stream_s=profile.decode_per_stream_s * factor,
        decode_per_token_s=profile.decode_per_token_s * factor,
    )


def steady(count: int, every_s: float) -> Trace:
    return Trace("steady", tuple(Arrival(every_s * n, 3000 + 37 * (n % 50), 60) for n in range(count)))


class Sick(World):
    """Replica 0 is three times slower between two times."""

    def __init__(self, pools: tuple[SimPool, ...], block_tokens: int, since_s: float, until_s: float) -> None:
        super().__init__(pools, block_tokens)
        self.since_s, self.until_s = since_s, until_s
        self.well = self.engines[0].profile

    def submit(self, row, request) -> None:  # type: ignore[no-untyped-def]
        ill = self.since_s <= self.clock.now_s < self.until_s
        self.engines[0].profile = slower(self.well, 3.0) if ill else self.well
        super().submit(row, request)


def test_a_replica_that_becomes_three_times_slower_loses_its_traffic_and_gets_it_back() -> None:
    trace = steady(1600, 0.1)
    world = Sick((FOUR,), 512, since_s=40.0, until_s=80.0)
    model = CostModel({"p": PoolFacts(TRUTH)})
    outcomes = Simulation(trace, world, (PoolShare("p"),), builtin_policies(), "latency", model).run()
    rows = np.array([outcome.row for outcome in outcomes])
    ours = np.flatnonzero(rows == 0)
    before = np.mean(rows[200:400] == 0)
    sick_from, well_from = 400, 800
    twentieth = ours[ours >= sick_from][min(19, np.sum((ours >= sick_from) & (ours < well_from)) - 1)]
    assert before == pytest.approx(0.25, abs=0.1)
    assert np.mean(rows[twentieth + 1 : well_from] == 0) < 0.4 * before, "after its twentieth slow exchange"
    assert np.mean(rows[1300:] == 0) > 0.6 * before, "well again"


@pytest.mark.parametrize("factor", [4.0, 0.25])
def test_a_pool_whose_prior_is_four_times_off_is_used_fairly_after_200_exchanges(factor: float) -> None:
    misjudged = replace(FOUR, name="q", urls=("http://q0:8000", "http://q1:8000"))
    judged = replace(FOUR, urls=("http://p0:8000", "http://p1:8000"))
    model = CostModel({"p": PoolFacts(TRUTH), "q": PoolFacts(slower(TRUTH, factor))})
    world = World((judged, misjudged), 512)
    shares = (PoolShare("p"), PoolShare("q"))
    outcomes = Simulation(steady(600, 0.07), world, shares, builtin_policies(), "latency", model).run()
    rows = np.array([outcome.row for outcome in outcomes[200:]])
    assert np.mean(rows >= 2) == pytest.approx(0.5, abs=0.12)
    error = [abs(o.predicted_ttft_s - o.ttft_s) / o.ttft_s for o in outcomes[200:]]
    assert np.median(error) < 0.2


def test_a_fleet_slower_than_believed_is_known_before_its_first_answers_end() -> None:
    names = ("h100-fp8", "h100-fp8", "b300-nvfp4", "gb200-mtp")
    priors = {name: load_profile(name, "vllm").without_tiers() for name in names}
    pools = [
        SimPool(
            name, "vllm", name, tuple(f"http://{name}{n}" for n in range(names.count(name))), profile=slower(prior, 4)
        )
        for name, prior in priors.items()
    ]
    trace = conversations(480, 80.0)

    def mean_ttft_s(believed: float) -> float:
        model = CostModel({name: PoolFacts(slower(prior, believed)) for name, prior in priors.items()})
        shares = tuple(PoolShare(name) for name in priors)
        outcomes = Simulation(trace, World(pools, 512), shares, builtin_policies(), "latency", model).run()
        return float(np.mean([outcome.ttft_s for outcome in outcomes]))

    assert mean_ttft_s(1.0) < 1.2 * mean_ttft_s(4.0)
