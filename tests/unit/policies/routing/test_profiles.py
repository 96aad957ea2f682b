"""What the profiles want: speed, cheap work, money, the same replica again."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from backends.profiles import load_profile
from policies.cost_model.facts import PoolFacts
from policies.routing.columns import slate_columns
from policies.routing.pick import Spill, cheapest
from policies.routing.request import PoolShare
from tests.unit.policies.routing.fleet import Desk, of_replicas

FACTS = {
    "h100": PoolFacts(load_profile("h100-fp8", "vllm"), gpus=8, price_per_gpu_hour=2.5),
    "gb200": PoolFacts(load_profile("gb200-mtp", "vllm"), gpus=4, price_per_gpu_hour=5.0),
}


def test_idle_unlike_pools_the_fast_one_gets_the_traffic() -> None:
    assert set(Desk({"h100": 2, "gb200": 1}, FACTS, policy="latency").spread(50)) == {"gb200/0"}


def test_throughput_fills_the_pool_that_does_most_work_per_second_first() -> None:
    latency = Desk({"h100": 1, "gb200": 1}, FACTS, policy="latency")
    batch = Desk({"h100": 1, "gb200": 1}, FACTS, policy="throughput")
    for desk in (latency, batch):
        desk.snapshot.table.exchanges[1] = 30
        desk.snapshot.table.context_tokens[1] = 30 * 2000
        desk.snapshot.table.prefill_tokens[1] = 40_000
    assert latency.decide(output_tokens=100).order[0].pool == "h100"
    assert batch.decide(output_tokens=800).order[0].pool == "gb200"


def test_cost_takes_the_cheaper_work() -> None:
    dear = {**FACTS, "gb200": PoolFacts(FACTS["gb200"].profile, gpus=4, price_per_gpu_hour=50.0)}
    assert Desk({"h100": 1, "gb200": 1}, dear, policy="cost").decide().order[0].pool == "h100"
    assert Desk({"h100": 1, "gb200": 1}, FACTS, policy="cost").decide().order[0].pool == "gb200"


def test_a_session_comes_home_unless_home_is_much_slower() -> None:
    desk = Desk({"h100": 4}, FACTS, policy="sticky")
    assert set(desk.spread(30, home="h100/2")) == {"h100/2"}
    desk.snapshot.table.prefill_tokens[2] = 900_000
    desk.snapshot.table.exchanges[2] = 20
    assert "h100/2" not in desk.spread(30, home="h100/2")


def test_a_hint_of_home_breaks_ties_only() -> None:
    desk = Desk({"h100": 4}, FACTS, policy="latency")
    assert set(desk.spread(30, home="h100/2")) == {"h100/2"}
    desk.snapshot.table.prefill_tokens[2] = 10_000
    desk.snapshot.table.exchanges[2] = 1
    assert "h100/2" not in desk.spread(30, home="h100/2")


def test_a_home_that_left_is_no_error() -> None:
    assert Desk({"h100": 2}, FACTS, policy="sticky").decide(home="h100/9").order


def test_equals_are_shared_by_weight_so_that_gateways_do_not_herd() -> None:
    desk = Desk({"h100": 4}, FACTS, policy="latency")
    hits = desk.spread(400)
    assert len(hits) == 4
    assert max(hits.values()) < 150
    rng, weight = random.Random(2), (3.0, 1.0, 1.0)
    firsts = [cheapest(np.array([5.0, 5.1, 90.0]), weight, rng, near_ms=1, near_share=0)[0][0] for _ in range(400)]
    assert 250 < firsts.count(0) < 350
    assert firsts.count(2) == 0


def test_what_the_first_costs_is_told_with_the_order() -> None:
    rng, cost = random.Random(2), np.array([5.1, 5.0, 90.0])
    seen = {cheapest(cost, (1.0, 1.0, 1.0), rng, near_ms=1, near_share=0)[1] for _ in range(50)}
    assert seen == {5.0, 5.1}


@pytest.mark.parametrize("count", [40, 400])
def test_the_order_is_by_cost_and_as_long_as_retries_need(count: int) -> None:
    cost = np.arange(float(count))[::-1].copy()
    order, least = cheapest(cost, (1.0,) * count, random.Random(1), near_ms=0, near_share=0)
    assert order == list(range(count - 1, count - 17, -1))
    assert least == 0.0


def test_spill_waits_for_its_threshold_and_comes_back_late() -> None:
    desk = Desk({"home": 1, "away": 1})
    desk.decide()
    slate = slate_columns(desk.router._view.slate((PoolShare("home"), PoolShare("away"))), desk.cost)
    spill, request = Spill(), desk.request(spill_after_ms=500.0, spill_back_ms=100.0)

    def chosen(home_ms: float) -> int:
        cost = np.array([home_ms, 100.0])
        added = spill.penalty(request, slate, cost)
        assert added is not None
        return int((cost + added).argmin())

    assert [chosen(ms) for ms in (100, 550, 601, 650, 300, 201, 199, 550, 601)] == [0, 0, 1, 1, 1, 1, 0, 0, 1]


def test_one_pool_or_no_preference_is_never_spilled() -> None:
    desk = Desk({"home": 2})
    desk.decide()
    slate = slate_columns(desk.router._view.slate((PoolShare("home"),)), desk.cost)
    cost = np.array([1.0, 2.0])
    assert Spill().penalty(desk.request(spill_after_ms=500.0), slate, cost) is None
    both = Desk({"home": 1, "away": 1})
    both.decide()
    assert Spill().penalty(both.request(), both.router._view.slate(both.pools), cost) is None


def test_a_preferred_pool_is_kept_while_it_is_not_too_slow() -> None:
    desk = Desk({"h100": 1, "gb200": 1}, FACTS, policy="latency")
    assert desk.decide().order[0].pool == "gb200"
    assert desk.decide(spill_after_ms=1000.0, spill_back_ms=200.0).order[0].pool == "h100"


def test_a_replica_that_has_the_adapter_is_worth_a_queue_but_not_any_queue() -> None:
    desk = Desk({"h100": 3}, FACTS, policy="latency")
    loaded = replace(desk.snapshot.replicas[1], adapters=frozenset({"legal"}))
    desk.snapshot = of_replicas((desk.snapshot.replicas[0], loaded, desk.snapshot.replicas[2]), version=2)
    assert set(desk.spread(20, lora="legal")) == {"h100/1"}
    assert len(desk.spread(60)) == 3
    assert len(desk.spread(60, lora="unheard of")) == 3
    desk.snapshot.table.prefill_tokens[1] = 500_000
    desk.snapshot.table.exchanges[1] = 10
    assert "h100/1" not in desk.spread(20, lora="legal")
