"""Priority in the engines' own order."""

from __future__ import annotations

from policies.routing.priority import LIMIT, engine_priority


def test_higher_is_sooner_for_both_kinds_of_engine() -> None:
    soon, later = 5, -5
    assert engine_priority(soon, lower_first=True) < engine_priority(later, lower_first=True)
    assert engine_priority(soon, lower_first=False) > engine_priority(later, lower_first=False)
    assert engine_priority(0, lower_first=True) == engine_priority(0, lower_first=False) == 0


def test_it_is_bounded() -> None:
    assert engine_priority(10**12, lower_first=True) == -LIMIT
    assert engine_priority(-(10**12), lower_first=False) == -LIMIT
