"""Policies that know nothing of caches."""

from __future__ import annotations

from policies.routing.plain import ATTEMPTS
from policies.routing.request import PoolShare
from tests.unit.policies.routing.fleet import Desk


def test_round_robin_gives_everybody_the_same() -> None:
    desk = Desk({"a": 3, "b": 2}, policy="round_robin")
    assert set(desk.spread(50).values()) == {10}


def test_round_robin_honours_weights_without_bursts() -> None:
    desk = Desk({"a": 1, "b": 1}, policy="round_robin")
    pools = (PoolShare("a", weight=3), PoolShare("b"))
    firsts = [desk.decide(pools=pools).order[0].pool for _ in range(8)]
    assert firsts.count("a") == 6
    assert "aaaa" not in "".join(firsts)


def test_a_ranking_names_each_replica_once_and_no_more_than_retries_need() -> None:
    for policy in ("round_robin", "least_load", "p2c", "consistent_hash"):
        for count in (1, 2, 3, 16, 17, 40):
            order = Desk({"a": count}, policy=policy).decide().order
            names = [replica.id for replica in order]
            assert len(set(names)) == len(names) == min(count, ATTEMPTS), (policy, count)


def test_least_load_counts_prompt_tokens_and_exchanges() -> None:
    desk = Desk({"a": 3}, policy="least_load")
    desk.snapshot.table.exchanges[0] = 2
    desk.snapshot.table.prefill_tokens[1] = 4000
    assert [replica.id for replica in desk.decide().order] == ["a/2", "a/0", "a/1"]


def test_least_load_shares_equals() -> None:
    hits = Desk({"a": 4}, policy="least_load").spread(400)
    assert min(hits.values()) > 60


def test_least_load_takes_weight_for_capacity() -> None:
    desk = Desk({"a": 1, "b": 1}, policy="least_load")
    desk.snapshot.table.exchanges[0] = 3
    desk.snapshot.table.exchanges[1] = 2
    assert desk.decide(pools=(PoolShare("a", weight=2), PoolShare("b"))).order[0].pool == "a"


def test_two_choices_never_takes_the_worst() -> None:
    desk = Desk({"a": 4}, policy="p2c")
    desk.snapshot.table.exchanges[3] = 50
    hits = desk.spread(400)
    assert "a/3" not in hits
    assert min(hits.values()) > 60


def test_two_choices_sees_counters_move_under_the_same_snapshot() -> None:
    desk = Desk({"a": 2}, policy="p2c")
    desk.decide()
    desk.snapshot.table.prefill_tokens[0] = 9000
    assert set(desk.spread(20)) == {"a/1"}
