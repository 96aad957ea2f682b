"""Pairs: a prefill replica by its own queue and cache, a decode replica by its own streams, one cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from backends.contracts import ReplicaState
from backends.located import Located
from backends.profiles import load_profile
from policies.cost_model.facts import PoolFacts
from policies.routing.builtin import builtin_policies
from policies.routing.request import PoolShare
from tests.unit.policies.routing.fleet import Desk, of_replicas

PROFILE = PoolFacts(load_profile("h100-fp8", "vllm"), gpus=8, price_per_gpu_hour=2.5)
FACTS = {"p": PROFILE, "d": PROFILE, "whole": PROFILE}
D, P = PoolShare("d"), PoolShare("p")
PAIRED: dict[str, Any] = {"pools": (D,), "partners": {"d": (P,)}, "prompt_tokens": 20_000}


def desk(policy: str = "latency", **pools: int) -> Desk:
    return Desk(pools or {"p": 2, "d": 2}, FACTS, policy=policy)


@pytest.mark.parametrize("policy", sorted(builtin_policies()))
def test_every_policy_names_both_sides(policy: str) -> None:
    decision = desk(policy).decide(**PAIRED)
    assert {replica.pool for replica in decision.order} == {"d"}
    assert decision.prefill is not None
    assert decision.prefill.pool == "p"


def test_prefill_goes_where_the_prompt_is_cached_and_decode_where_there_is_room() -> None:
    at = desk()
    at.snapshot.table.exchanges[3] = 40  # d/1
    at.snapshot.table.context_tokens[3] = 40 * 5000
    reach = Located.nothing(4).reach.copy()
    reach[:, 1] = 19_000  # p/1
    reach[:, 3] = 20_000  # what decode replicas hold does not matter
    decision = at.decide(Located(reach), **PAIRED)
    assert decision.order[0].id == "d/0"
    assert decision.prefill is not None
    assert decision.prefill.id == "p/1"
    assert decision.expected is not None
    assert decision.expected.by_tier[0] == 19_000
    assert 0 < decision.prefill_tokens < 3000


def test_a_busy_prefill_replica_is_avoided_and_a_burst_spreads() -> None:
    at = desk()
    at.snapshot.table.prefill_tokens[0] = 200_000
    at.snapshot.table.exchanges[0] = 10
    first = at.decide(**PAIRED).prefill
    assert first is not None
    assert first.id == "p/1"


def test_evidence_names_the_partner_and_the_terms_of_both_sides() -> None:
    decision = desk().decide(**PAIRED)
    assert decision.explain is not None
    assert decision.prefill is not None
    found = {candidate.replica: candidate for candidate in decision.explain()}
    assert found["d/0"].prefill == decision.prefill.id
    assert {"paired", "transfer", "decode"} <= found["d/0"].terms.keys()
    assert "prefill" not in found["d/0"].terms
    assert found["p/0"].terms["prefill"] > 0
    assert found["d/0"].terms["paired"] == pytest.approx(found[decision.prefill.id].cost_ms)


def test_a_pair_stands_against_a_pool_that_does_both() -> None:
    at = desk(p=1, d=1, whole=1)
    pools = (D, PoolShare("whole"))
    asked = {**PAIRED, "pools": pools}
    at.snapshot.table.prefill_tokens[2] = 400_000  # whole/0 has a queue
    at.snapshot.table.exchanges[2] = 4
    decision = at.decide(**asked)
    assert decision.order[0].pool == "d"
    other = desk(p=1, d=1, whole=1)
    other.snapshot.table.prefill_tokens[0] = 400_000  # so has p/0
    other.snapshot.table.exchanges[0] = 4
    decision = other.decide(**asked)
    assert decision.order[0].pool == "whole"
    assert decision.prefill is None
    assert decision.prefill_tokens > 10_000


def test_without_a_prefill_replica_decode_stands_only_where_it_can_prefill() -> None:
    at = desk()
    down = [replace(r, state=ReplicaState.DOWN) if r.pool == "p" else r for r in at.snapshot.replicas]
    at.snapshot = of_replicas(tuple(down), version=2)
    decision = at.decide(**PAIRED)
    assert decision.order == ()
    assert decision.explain is not None
    reasons = {candidate.replica: candidate.filtered for candidate in decision.explain()}
    assert reasons["d/0"] == "no replica of its prefill pool is ready"
    assert reasons["p/0"] == "down"
    alone = at.decide(**PAIRED, alone=frozenset({"d"}))
    assert alone.order
    assert alone.prefill is None


def test_partners_that_were_tried_come_again_only_where_decode_cannot_do_without() -> None:
    at = desk(p=1, d=2)
    tried = frozenset({"p/0", "d/0"})
    again = at.decide(**PAIRED, exclude=tried)
    assert (again.order[0].id, again.prefill and again.prefill.id) == ("d/1", "p/0")
    alone = at.decide(**PAIRED, exclude=tried, alone=frozenset({"d"}))
    assert (alone.order[0].id, alone.prefill) == ("d/1", None)


def test_what_a_dispatch_charges_waits_on_the_prefill_side() -> None:
    at = desk(p=2, d=1)
    at.snapshot.table.exchanges[0] = at.snapshot.table.exchanges[1] = 1
    at.snapshot.table.prefill_tokens[0] = at.snapshot.table.prefill_tokens[1] = 20_000
    chosen = [decision.prefill.id for decision in (at.decide(**PAIRED) for _ in range(6)) if decision.prefill]
    assert sorted(np.unique(chosen)) == ["p/0", "p/1"]
