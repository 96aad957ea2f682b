"""Consistent hashing."""

from __future__ import annotations

from tests.unit.policies.routing.fleet import Desk


def test_a_key_stays_where_it_is() -> None:
    desk = Desk({"a": 5}, policy="consistent_hash")
    assert len(desk.spread(20, session="s1")) == 1
    assert len(desk.spread(20, prefix_key=77)) == 1


def test_keys_spread() -> None:
    desk = Desk({"a": 4}, policy="consistent_hash")
    firsts = [desk.decide(session=f"s{number}").order[0].id for number in range(400)]
    assert all(60 < firsts.count(f"a/{number}") < 140 for number in range(4))


def test_a_replica_that_leaves_moves_only_its_own_keys() -> None:
    desk = Desk({"a": 5}, policy="consistent_hash")
    sessions = [f"s{number}" for number in range(200)]
    before = {s: desk.decide(session=s).order[0].id for s in sessions}
    after = {s: desk.decide(session=s, exclude=frozenset({"a/2"})).order[0].id for s in sessions}
    assert {s for s in sessions if before[s] != after[s]} == {s for s in sessions if before[s] == "a/2"}


def test_an_overloaded_replica_is_passed_over() -> None:
    desk = Desk({"a": 4}, policy="consistent_hash")
    home = desk.decide(session="s").order[0]
    desk.snapshot.table.exchanges[home.row] = 20
    assert desk.decide(session="s").order[0].id != home.id
    assert desk.decide(session="s").order[-1].id == home.id
