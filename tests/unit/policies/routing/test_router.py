"""Filters, canary share, evidence."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from backends.contracts import ReplicaState
from backends.located import Located
from policies.cost_model.model import CostModel
from policies.routing.builtin import builtin_policies
from policies.routing.plain import RoundRobin, RoundRobinSpec
from policies.routing.request import PoolShare
from policies.routing.router import Router
from tests.unit.policies.routing.fleet import Desk, Watch, of_replicas


def test_only_ready_replicas_of_the_models_pools_stand() -> None:
    desk = Desk({"a": 2, "b": 1}, policy="round_robin")
    sick = replace(desk.snapshot.replicas[0], state=ReplicaState.DRAINING, reason="by an operator")
    desk.snapshot = of_replicas((sick, *desk.snapshot.replicas[1:]), version=2)
    decision = desk.decide(pools=(PoolShare("a"),))
    assert [replica.id for replica in decision.order] == ["a/1"]
    assert decision.explain is not None
    assert {c.replica: c.filtered for c in decision.explain()} == {"a/0": "draining: by an operator", "a/1": ""}


def test_evidence_tells_why_a_pool_was_refused() -> None:
    desk = Desk({"a": 1, "b": 1})
    decision = desk.decide(pools=(PoolShare("a"),), refused={"b": "no images"})
    assert decision.explain is not None
    assert {c.replica: c.filtered for c in decision.explain()} == {"a/0": "", "b/0": "no images"}


def test_nobody_left_is_an_empty_order() -> None:
    desk = Desk({"a": 1})
    decision = desk.decide(exclude=frozenset({"a/0"}))
    assert decision.order == ()
    assert decision.explain is not None
    assert decision.explain()[0].filtered == "tried before"


def test_a_canary_gets_its_share_and_keeps_its_sessions() -> None:
    desk = Desk({"live": 1, "canary": 1}, policy="round_robin")
    pools = (PoolShare("live"), PoolShare("canary", share=0.2, weight=1e9))
    seen = {s: desk.decide(pools=pools, session=s).order[0].pool for s in (f"s{n}" for n in range(500))}
    assert 60 <= list(seen.values()).count("canary") <= 140
    assert all(desk.decide(pools=pools, session=s).order[0].pool == pool for s, pool in seen.items())
    assert 60 <= sum(desk.decide(pools=pools).order[0].pool == "canary" for _ in range(500)) <= 140


def test_a_data_parallel_rank_is_the_one_that_holds_the_prompt() -> None:
    desk = Desk({"a": 1})
    desk.snapshot = of_replicas((replace(desk.snapshot.replicas[0], dp_ranks=4),), version=2)
    assert desk.decide().dp_rank is None
    assert desk.decide(prefix_key=6).dp_rank == 2
    nowhere, somewhere = np.array([-1]), np.array([3])
    reach = Located.nothing(1).reach
    assert desk.decide(Located(reach, dp_rank=nowhere), prefix_key=6).dp_rank == 2
    assert desk.decide(Located(reach, dp_rank=somewhere), prefix_key=6).dp_rank == 3


def test_two_policies_of_one_name_are_a_bug() -> None:
    registry = builtin_policies()
    with pytest.raises(ValueError, match="registered twice"):
        registry.register("round_robin", RoundRobinSpec(), RoundRobin)


def test_an_unknown_default_is_refused_at_once() -> None:
    with pytest.raises(ValueError, match="unknown routing policy 'best'"):
        Router(builtin_policies(), Watch(), default="best")


def test_policies_that_count_no_costs_need_no_cost_model() -> None:
    desk = Desk({"a": 3, "b": 2})
    for policy in ("round_robin", "least_load", "p2c", "consistent_hash", "prefix_text"):
        decision = desk.router.decide(desk.request(policy=policy), None, desk.snapshot, None, desk.rng)
        assert decision.order, policy
    with pytest.raises(ValueError, match="without a cost model"):
        desk.router.decide(desk.request(policy="latency"), None, desk.snapshot, None, desk.rng)


def test_columns_belong_to_one_cost_model() -> None:
    desk = Desk({"a": 2}, policy="latency")
    assert desk.decide().order
    desk.cost = CostModel()
    assert desk.decide().order
    assert {score.replica for score in desk.cost.scores()} == {"a/0", "a/1"}
