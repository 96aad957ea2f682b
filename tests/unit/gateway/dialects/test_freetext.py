from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.freetext import FreeText


def run(arguments: str, cuts: list[int]) -> tuple[list[str], str]:
    free = FreeText()
    edges = sorted({0, len(arguments), *(cut % (len(arguments) + 1) for cut in cuts)})
    pieces = [free.feed(arguments[a:b]) for a, b in pairwise(edges)]
    pieces.append(free.finish())
    assert "".join(pieces) == free.text
    return pieces, free.text


@given(text=st.text(), cuts=st.lists(st.integers(0, 400)), ascii_only=st.booleans(), indent=st.sampled_from([None, 2]))
def test_any_split_gives_the_text(text, cuts, ascii_only, indent):
    assert run(json.dumps({"input": text}, ensure_ascii=ascii_only, indent=indent), cuts)[1] == text


@pytest.mark.parametrize("arguments", ["", "plain text", '{"other": "x"}', '["x"]', '{"input": 3}'])
def test_another_form_is_given_as_it_is(arguments):
    assert run(arguments, list(range(20)))[1] == arguments


def test_text_comes_as_soon_as_it_is_certain():
    free = FreeText()
    assert free.feed('{"input": "*** Begin') == "*** Begin"
    assert free.feed(" Patch\\") == " Patch"
    assert free.feed("n+x") == "\n+x"
    assert free.feed('"}') == ""
    assert free.finish() == ""


def test_what_was_cut_off_keeps_what_came():
    assert run('{"input": "half', [])[1] == "half"


def test_an_invalid_escape_loses_nothing():
    assert run('{"input": "a\\x and much more text', [])[1] == "a\\x and much more text"
    assert run('{"input": "half\\u00', [])[1] == "half"
