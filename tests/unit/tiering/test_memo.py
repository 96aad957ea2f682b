from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.memo import BoundedMemo


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 40))))
def test_weight_never_exceeds_the_cap(puts: list[tuple[int, int]]) -> None:
    memo: BoundedMemo[int, int] = BoundedMemo(60)
    held: dict[int, int] = {}
    for key, weight in puts:
        memo.put(key, weight, weight)
        held[key] = weight
        assert memo.weight <= 60
        assert memo.weight == sum(held[key] for key in held if memo.get(key) is not None)
        assert memo.get(key) == weight


def test_the_least_recently_used_goes_first() -> None:
    memo: BoundedMemo[str, int] = BoundedMemo(2)
    memo.put("a", 1, 1)
    memo.put("b", 2, 1)
    assert memo.get("a") == 1
    memo.put("c", 3, 1)
    assert memo.get("b") is None
    assert memo.get("a") == 1


def test_a_value_heavier_than_the_cap_is_not_kept() -> None:
    memo: BoundedMemo[str, int] = BoundedMemo(5)
    memo.put("a", 1, 3)
    memo.put("a", 2, 6)
    assert memo.get("a") is None
    assert memo.weight == 0
