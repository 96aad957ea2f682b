from __future__ import annotations

import json

from gateway.dialects.events import ToolArgs, ToolOpen
from gateway.dialects.toolcalls import Fragment, Function, ToolCalls


def run(*fragments: Fragment, whole: bool = True) -> list[tuple[str, str, str]]:
    """(id, name, arguments) of the calls, in order."""
    made = iter(f"call_new{i}" for i in range(9))
    calls = ToolCalls(0, lambda: next(made))
    events = [event for fragment in fragments for event in calls.feed(fragment)] + calls.finish(whole=whole)
    out: dict[int, list[str]] = {}
    for event in events:
        if isinstance(event, ToolOpen):
            assert event.index == len(out)
            out[event.index] = [event.id, event.name, ""]
        elif isinstance(event, ToolArgs):
            out[event.index][2] += event.fragment
    return [tuple(call) for call in out.values()]


def piece(index, id=None, name=None, arguments=None):  # noqa: A002
    return Fragment(index, id, Function(name, arguments))


def test_calls_that_interleave():
    got = run(
        piece(0, "a", "f", ""), piece(1, "b", "g", ""), piece(0, arguments='{"x"'), piece(1, arguments="{"),
        piece(0, arguments=":1}"), piece(1, arguments="}"),
    )  # fmt: skip
    assert got == [("a", "f", '{"x":1}'), ("b", "g", "{}")]


def test_an_index_used_for_two_ids_is_two_calls():
    got = run(piece(0, "a", "f", "{}"), piece(0, "b", "f", '{"y"'), piece(0, arguments=":2}"))
    assert got == [("a", "f", "{}"), ("b", "f", '{"y":2}')]


def test_a_repeated_name_and_id_change_nothing():
    assert run(piece(0, "a", "f", "{"), piece(0, "a", "f", "}")) == [("a", "f", "{}")]
    assert run(piece(0, "a", "f", ""), piece(0, "a", "f", "{}")) == [("a", "f", "{}")]


def test_without_an_index():
    got = run(piece(None, "a", "f", "{"), piece(None, arguments="}"), piece(None, "b", "g", "{}"))
    assert got == [("a", "f", "{}"), ("b", "g", "{}")]
    assert run(piece(None, arguments="{}")) == []


def test_a_call_without_arguments_takes_none():
    assert run(piece(0, "a", "now")) == [("a", "now", "{}")]
    assert run(piece(0, "a", "now"), whole=False) == [("a", "now", "")]


def test_arguments_before_the_name_wait():
    assert run(piece(0, "a", None, "{"), piece(0, None, "f", "}")) == [("a", "f", "{}")]


def test_ids_that_are_missing_foreign_or_taken_are_made():
    got = run(
        piece(0, None, "f", "{}"),
        piece(1, "functions.f:1", "f", "{}"),
        piece(2, "a", "f", "{}"),
        piece(3, "a", "f", "{}"),
    )
    assert [call[0] for call in got] == ["call_new0", "call_new1", "a", "call_new2"]


def test_arguments_as_an_object():
    [(_, _, arguments)] = run(piece(0, "a", "f", {"x": [1, "é"]}))
    assert json.loads(arguments) == {"x": [1, "é"]}
