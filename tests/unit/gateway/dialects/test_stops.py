from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.stops import StopMatcher


def run(stops: list[str], text: str, cuts: list[int], *, keep: bool = False) -> tuple[str, str | None]:
    matcher = StopMatcher(stops, keep=keep)
    edges = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    out = "".join(matcher.feed(text[a:b]) for a, b in pairwise(edges))
    out += matcher.flush()
    return out, matcher.matched


@given(
    text=st.text("ab<|>", max_size=40),
    stops=st.lists(st.text("ab<|>", min_size=1, max_size=4), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 60)),
)
def test_any_split_cuts_at_the_earliest_match(text, stops, cuts):
    places = [(text.find(stop), -len(stop), stop) for stop in stops if stop in text]
    expected = (text[: min(places)[0]], min(places)[2]) if places else (text, None)
    assert run(stops, text, []) == expected
    assert run(stops, text, cuts) == expected


@given(text=st.text("abST", max_size=30), cut=st.integers(0, 30))
def test_no_part_of_a_stop_is_ever_shown(text, cut):
    shown, matched = run(["STOP"], text + "STOP tail", [cut])
    assert "STOP" not in shown
    assert matched == "STOP"


def test_keep_shows_the_stop_itself():
    assert run(["END"], "one END two", [5, 6], keep=True) == ("one END", "END")


def test_what_was_held_back_comes_at_the_end():
    matcher = StopMatcher(["<|stop|>"])
    assert matcher.feed("abc <|st") == "abc "
    assert matcher.flush() == "<|st"


@pytest.mark.parametrize("text", ["", "x"])
def test_nothing_after_a_match(text):
    matcher = StopMatcher(["x"])
    matcher.feed("x")
    assert matcher.feed(text) == ""
