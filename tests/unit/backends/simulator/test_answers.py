"""Planned answers: deterministic, and cut where they must be."""

from __future__ import annotations

import json
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from backends.simulator.answers import Answer, Ask, Planner
from backends.simulator.tokenizer import Tokenizer

PLANNER = Planner(Tokenizer(), seed=1)
ASK = Ask(prompt=[1, 2, 3])
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"properties": {"n": {"type": "integer"}}}}}


def text(answer: Answer, channel: str = "content") -> str:
    return "".join(token.text for token in answer.tokens if token.channel == channel)


def test_equal_asks_give_equal_answers() -> None:
    assert PLANNER.plan(ASK) == PLANNER.plan(ASK)
    assert text(PLANNER.plan(ASK)) != text(PLANNER.plan(ASK, variant=1))
    assert text(PLANNER.plan(ASK)) != text(Planner(Tokenizer(), seed=2).plan(ASK))
    assert text(PLANNER.plan(ASK)) != text(PLANNER.plan(replace(ASK, prompt=[1, 2, 4])))


@given(st.integers(1, 100))
def test_a_limit_cuts_and_says_so(limit: int) -> None:
    whole, cut = PLANNER.plan(ASK), PLANNER.plan(replace(ASK, max_tokens=limit))
    assert text(whole).startswith(text(cut))
    assert len(cut.tokens) == min(limit, len(whole.tokens))
    assert cut.finish == ("length" if limit < len(whole.tokens) else "stop")


def test_ignore_eos_goes_on_to_the_limit() -> None:
    answer = PLANNER.plan(replace(ASK, ignore_eos=True, max_tokens=500))
    assert (len(answer.tokens), answer.finish) == (500, "length")
    assert all(token.text for token in answer.tokens)


def test_min_tokens() -> None:
    assert len(PLANNER.plan(replace(ASK, min_tokens=200, max_tokens=300)).tokens) > 200


@given(st.integers(0, 60), st.integers(1, 12), st.booleans())
def test_stop_strings(start: int, length: int, keep: bool) -> None:
    whole = text(PLANNER.plan(ASK))
    stop = whole[start : start + length]
    answer = PLANNER.plan(replace(ASK, stop=[stop, "never"], keep_stop=keep))
    if not stop:
        assert answer.matched is None
        return
    at = whole.index(stop)
    assert text(answer) == whole[: at + len(stop) if keep else at]
    assert (answer.finish, answer.matched) == ("stop", stop)


def test_a_stop_beyond_the_limit_does_not_count() -> None:
    word = text(PLANNER.plan(ASK)).split()[8]
    answer = PLANNER.plan(replace(ASK, stop=[word], max_tokens=3))
    assert (answer.finish, answer.matched, len(answer.tokens)) == ("length", None, 3)


def test_reasoning_comes_first_and_has_a_budget() -> None:
    answer = PLANNER.plan(replace(ASK, effort="high"))
    channels = [token.channel for token in answer.tokens]
    assert channels == sorted(channels, key=["reasoning", "content", "silent"].index)
    short = PLANNER.plan(replace(ASK, effort="high", thinking_budget=4))
    assert sum(token.channel == "reasoning" for token in short.tokens) == 5


def test_tool_calls() -> None:
    for choice in ("required", "f"):
        answer = PLANNER.plan(replace(ASK, tools=[TOOL], tool_choice=choice))
        assert (answer.calls, json.loads(text(answer, "call")), answer.finish) == (["f"], {"n": 1}, "tool_calls")
    free = replace(ASK, tools=[TOOL], tool_choice="auto")
    assert PLANNER.plan(free).calls == []
    asked = PLANNER.plan(replace(free, last_text='call:f{"n": 7} and call:unknown'))
    assert (asked.calls, text(asked, "call")) == (["f"], '{"n": 7}')
    assert sum(token.opens for token in asked.tokens) == 1


def test_grammar_and_choices() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "boolean"}}}
    assert json.loads(text(PLANNER.plan(replace(ASK, grammar=schema)))) == {"a": True}
    assert text(PLANNER.plan(replace(ASK, choices=["yes", "no"]))) == "yes"
