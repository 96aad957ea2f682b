"""Terms of the cost: restore or recompute, queues, interference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.contracts import Candidate, Decision
from backends.located import Located
from backends.profiles import FsTier, HostTier, Profile, load_profile
from policies.cost_model.facts import PoolFacts
from policies.cost_model.model import CostModel
from tests.unit.policies.routing.fleet import Desk, of_replicas

H200 = load_profile("h200", "vllm")
FAST = load_profile("b300-nvfp4", "vllm")


def desk(replicas: int = 1, profile: Profile = H200, *, obeys: bool = True, policy: str = "latency") -> Desk:
    return Desk({"a": replicas}, {"a": PoolFacts(profile, obeys_load_tiers=obeys)}, policy=policy)


def held(rows: int, **tiers: dict[int, int]) -> Located:
    """Tokens by tier and row, e.g. host={1: 8000}."""
    own = np.zeros((4, rows), dtype=np.int64)
    for place, tier in enumerate(("gpu", "host", "fs", "remote")):
        for row, tokens in tiers.get(tier, {}).items():
            own[place, row] = tokens
    return Located(own.cumsum(axis=0))


def evidence(decision: Decision) -> dict[str, Candidate]:
    assert decision.explain is not None
    return {candidate.replica: candidate for candidate in decision.explain()}


def test_the_warm_replica_wins_and_the_terms_say_why() -> None:
    it = desk(3)
    decision = it.decide(held(3, gpu={1: 28_000}), prompt_tokens=30_000)
    assert decision.order[0].id == "a/1"
    seen = evidence(decision)
    assert seen["a/0"].terms["prefill"] > 8 * seen["a/1"].terms["prefill"]
    assert seen["a/0"].cost_ms == pytest.approx(sum(seen["a/0"].terms.values()))
    assert decision.predicted_cached["gpu"] == 28_000
    assert decision.prefill_tokens < 6000


def test_a_queue_outweighs_a_small_match() -> None:
    it = desk(2)
    it.snapshot.table.prefill_tokens[0] = 60_000
    it.snapshot.table.exchanges[0] = 5
    assert it.decide(held(2, gpu={0: 4000}), prompt_tokens=8000).order[0].id == "a/1"


def test_host_memory_beats_recompute_and_a_slow_disk_does_not() -> None:
    from_host = desk().decide(held(1, host={0: 32_000}), prompt_tokens=32_768)
    assert from_host.load_tiers is None
    assert from_host.predicted_cached["host"] == 32_000
    from_disk = desk().decide(held(1, fs={0: 32_000}), prompt_tokens=32_768)
    assert from_disk.load_tiers == ("gpu",)
    assert from_disk.predicted_cached == {"gpu": 0, "host": 0, "fs": 0, "remote": 0}


def test_an_engine_that_loads_whatever_it_finds_is_costed_as_such() -> None:
    decision = desk(obeys=False).decide(held(1, fs={0: 32_000}), prompt_tokens=32_768)
    assert decision.load_tiers is None
    assert decision.predicted_cached["fs"] == 32_000
    assert decision.predicted_ttft_ms > 2500


def test_a_crowd_of_running_streams_makes_the_disk_worth_it() -> None:
    """A cold prefill stalls every stream; a disk read stalls none."""
    it = desk()
    it.snapshot.table.exchanges[0] = 200
    decision = it.decide(held(1, fs={0: 32_000}), prompt_tokens=32_768)
    assert decision.load_tiers is None
    assert decision.predicted_cached["fs"] == 32_000


def test_only_the_tiers_that_pay_are_read() -> None:
    decision = desk().decide(held(1, gpu={0: 1000}, host={0: 20_000}, fs={0: 11_000}), prompt_tokens=32_768)
    assert decision.load_tiers == ("gpu", "host")
    assert [decision.predicted_cached[tier] for tier in ("gpu", "host", "fs")] == [1000, 20_000, 0]


def test_file_reads_of_one_host_stand_in_one_line() -> None:
    quick = replace(
        H200,
        host=HostTier(0.001, 0.0, 5e10, 147_456, 10**7, 0.0),
        fs=FsTier(0.006, 1.2e10, 147_456, 10**8, 1e10, 0.0),
    )
    it = desk(2, quick)
    both = tuple(replace(replica, url=f"http://one-host:{8000 + replica.row}") for replica in it.snapshot.replicas)
    it.snapshot = of_replicas(both, version=2)
    first = it.decide(held(2, fs={0: 32_000}), prompt_tokens=32_768)
    assert first.order[0].id == "a/0"
    seen = evidence(it.decide(held(2, fs={1: 32_000}), prompt_tokens=32_768))
    assert seen["a/1"].terms["tier_queue"] > 300
    apart = desk(2, quick)
    apart.decide(held(2, fs={0: 32_000}), prompt_tokens=32_768)
    assert "tier_queue" not in evidence(apart.decide(held(2, fs={1: 32_000}), prompt_tokens=32_768))["a/1"].terms


def test_a_burst_queues_before_anybody_reports_it() -> None:
    it = desk(4)
    hits = []
    for _ in range(8):
        decision = it.decide(prompt_tokens=20_000)
        row = decision.order[0].row
        it.snapshot.table.exchanges[row] += 1
        it.snapshot.table.prefill_tokens[row] += decision.prefill_tokens
        hits.append(row)
    assert sorted(hits) == [0, 0, 1, 1, 2, 2, 3, 3]


def test_an_unsure_index_counts_less() -> None:
    reach = held(2, gpu={0: 20_000, 1: 16_000}).reach
    sure = Located(reach, confidence=np.array([0.3, 1.0]))
    assert desk(2).decide(sure, prompt_tokens=24_000).order[0].id == "a/1"


def test_the_best_boundary_of_a_tier_is_an_end_of_it() -> None:
    """Why boundaries inside a tier need not be listed: none of them is ever cheaper than both ends."""
    rng = np.random.default_rng(1)
    for prompt in (3000, 30_000, 100_000):
        inside = rng.integers(1, prompt, 20)
        costs = [
            desk(obeys=False).decide(held(1, fs={0: int(end)}), prompt_tokens=prompt).predicted_ttft_ms
            for end in (0, prompt, *inside)
        ]
        assert min(costs) >= min(costs[:2]) - 0.02 * min(costs[:2])


def test_a_full_batch_costs_the_wait_for_a_place() -> None:
    it = desk(2, FAST)
    it.snapshot.table.exchanges[0] = FAST.max_batch + 40
    it.snapshot.table.exchanges[1] = FAST.max_batch - 1
    seen = evidence(it.decide(prompt_tokens=1000))
    assert seen["a/0"].terms["queue"] > seen["a/1"].terms["queue"] + 100


def test_a_prompt_that_is_wholly_cached_computes_nothing() -> None:
    decision = desk(2).decide(held(2, gpu={0: 40_000}, host={1: 8000}), prompt_tokens=8000)
    assert decision.prefill_tokens == 0
    seen = evidence(decision)
    assert not {"prefill", "restore_host"} & seen["a/0"].terms.keys()
    assert "prefill" not in seen["a/1"].terms
    assert seen["a/1"].terms["restore_host"] > 0
    assert evidence(desk().decide(held(1, gpu={0: 1}), prompt_tokens=0))["a/0"].terms.get("prefill", 0.0) == 0.0


def test_a_slate_with_gaps_is_costed_like_one_without() -> None:
    where = held(5, gpu={1: 9000, 3: 2000}, host={1: 12_000, 4: 30_000}, fs={3: 20_000})
    costs = []
    for left_out in (frozenset({"a/0"}), frozenset({"a/0", "a/2"})):
        it = desk(5)
        it.snapshot.table.exchanges[3] = 4
        seen = evidence(it.decide(where, prompt_tokens=40_000, exclude=left_out))
        costs.append([seen[name].terms for name in ("a/1", "a/3", "a/4")])
    assert costs[0] == costs[1]


def test_a_slate_follows_the_cost_model() -> None:
    """What a slate keeps of its replicas' figures is of one fleet of one cost model."""
    it, where = desk(), held(1, fs={0: 32_000})
    assert it.decide(where, prompt_tokens=32_768).load_tiers == ("gpu",)
    it.cost = CostModel({"a": PoolFacts(H200, obeys_load_tiers=False)})
    assert it.decide(where, prompt_tokens=32_768).load_tiers is None
