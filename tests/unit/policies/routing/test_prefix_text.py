"""The text-prefix policy, which others route by."""

from __future__ import annotations

from policies.routing.prefix_text import PrefixText, PrefixTextSpec
from tests.unit.policies.routing.fleet import Desk


def test_a_known_prefix_goes_where_it_went() -> None:
    desk = Desk({"a": 4}, policy="prefix_text")
    first = desk.decide(chain=(1, 2, 3, 4)).order[0].id
    assert desk.decide(chain=(1, 2, 3, 5)).order[0].id == first
    assert desk.decide(chain=(9, 8, 7, 6)).order[0].id != first


def test_a_short_match_goes_where_least_is_remembered() -> None:
    desk = Desk({"a": 2}, policy="prefix_text")
    first = desk.decide(chain=(1, 2, 3, 4)).order[0].id
    assert desk.decide(chain=(1, 20, 30, 40)).order[0].id != first


def test_out_of_balance_the_idlest_wins() -> None:
    desk = Desk({"a": 2}, policy="prefix_text")
    first = desk.decide(chain=(1, 2, 3, 4)).order[0]
    desk.snapshot.table.exchanges[first.row] = 100
    assert desk.decide(chain=(1, 2, 3, 4)).order[0].id != first.id


def test_memory_is_bounded() -> None:
    policy = PrefixText(PrefixTextSpec(blocks=100))
    desk = Desk({"a": 2}, policy="prefix_text")
    desk.router._policies["prefix_text"] = policy
    for number in range(200):
        desk.decide(chain=tuple(range(10 * number, 10 * number + 10)))
    assert len(policy._seen) == 100
    assert sum(policy._sizes.values()) == 100
