"""What holds of every stream: any split gives the same bytes, every event is one the official SDKs know."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import Cause, GatewayError
from tests.conformance.assertions import summarise
from tests.conformance.check_chat import validate_chat_object, validate_chat_stream
from tests.conformance.check_messages import validate_message_object, validate_messages_stream
from tests.conformance.check_responses import validate_response_object, validate_responses_stream
from tests.conformance.offline import events_of
from tests.unit.gateway.dialects import support

TOOL = {"type": "object", "properties": {}}
TOOLS = {
    "chat": [{"type": "function", "function": {"name": "f", "parameters": TOOL}}],
    "responses": [{"type": "function", "name": "f", "parameters": TOOL}],
    "messages": [{"name": "f", "input_schema": TOOL}],
}
WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=12)
ANSWERS = st.fixed_dictionaries({
    "thoughts": st.lists(WORDS, max_size=3),
    "texts": st.lists(WORDS, max_size=4),
    "calls": st.lists(st.dictionaries(WORDS, WORDS, max_size=2), max_size=3),
    "interleave": st.booleans(),
    "length": st.booleans(),
})  # fmt: skip
_KEYS = [
    "choices",
    "delta",
    "message",
    "index",
    "content",
    "tool_calls",
    "function",
    "arguments",
    "finish_reason",
    "usage",
]
DIALECTS = st.sampled_from(["chat", "responses", "messages"])
ENGINES = st.sampled_from([support.VLLM, support.SGLANG])


def engine_stream(answer: dict[str, Any], field: str) -> bytes:
    deltas: list[dict[str, Any]] = [{field: text} for text in answer["thoughts"]]
    deltas += [{"content": text} for text in answer["texts"]]
    arguments = [json.dumps(value, ensure_ascii=False) for value in answer["calls"]]
    opened = [support.tool(i, id=f"call_{i}", name="f", args="") for i in range(len(arguments))]
    halves = [
        (i, half) for i, text in enumerate(arguments) for half in (text[: len(text) // 2], text[len(text) // 2 :])
    ]
    if answer["interleave"]:
        halves.sort(key=lambda pair: arguments[pair[0]].startswith(pair[1]), reverse=True)
        deltas += opened + [support.tool(i, args=half) for i, half in halves]
    else:
        for i, delta in enumerate(opened):
            deltas += [delta] + [support.tool(i, args=half) for j, half in halves if i == j]
    finish = "length" if answer["length"] else "tool_calls" if arguments else "stop"
    usage = {
        "prompt_tokens": 9,
        "completion_tokens": 5,
        "total_tokens": 14,
        "prompt_tokens_details": {"cached_tokens": 4},
    }
    return support.stream(*deltas, finish=finish, usage=usage)


def wrong(dialect: str, data: bytes) -> list[str]:
    events, done = events_of(data.decode())
    if dialect == "chat":
        return validate_chat_stream([payload for _, payload in events], include_usage=True, done=done)
    check = validate_responses_stream if dialect == "responses" else validate_messages_stream
    return check(events)


def fields_of(dialect: str, *, stream: bool = True) -> dict[str, Any]:
    fields: dict[str, Any] = {"stream": stream, "tools": TOOLS[dialect]}
    return fields | {"stream_options": {"include_usage": True}} if dialect == "chat" and stream else fields


@settings(max_examples=120, deadline=None)
@given(dialect=DIALECTS, engine=ENGINES, answer=ANSWERS, step=st.integers(1, 40))
def test_every_stream_is_valid_complete_and_independent_of_the_split(dialect, engine, answer, step):
    data = engine_stream(answer, engine.reasoning_field)
    fields = fields_of(dialect)
    out = support.play(support.transcoder(dialect, fields, engine), data)
    assert wrong(dialect, out) == []
    assert support.play(support.transcoder(dialect, fields, engine), data, step) == out
    seen = summarise(dialect, support.client_events(out))
    assert seen["text"] == "".join(answer["texts"])
    assert seen["reasoning"] == "".join(answer["thoughts"])
    assert [json.loads(call["arguments"]) for call in seen["tools"]] == answer["calls"]


@settings(max_examples=60, deadline=None)
@given(dialect=DIALECTS, engine=ENGINES, answer=ANSWERS)
def test_a_whole_answer_says_the_same(dialect, engine, answer):
    calls = [
        {"id": f"call_{i}", "type": "function", "function": {"name": "f", "arguments": json.dumps(value)}}
        for i, value in enumerate(answer["calls"])
    ]
    message = {engine.reasoning_field: "".join(answer["thoughts"]) or None, "content": "".join(answer["texts"])}
    body = support.whole(message | {"tool_calls": calls or None}, "tool_calls" if calls else "stop")
    out = json.loads(support.play(support.transcoder(dialect, fields_of(dialect, stream=False), engine), body))
    check = {"chat": validate_chat_object, "responses": validate_response_object, "messages": validate_message_object}
    assert check[dialect](out) == []
    spoken = json.dumps(out, ensure_ascii=False)
    for text in ("".join(answer["texts"]), "".join(answer["thoughts"])):
        assert json.dumps(text, ensure_ascii=False)[1:-1] in spoken


@settings(max_examples=60, deadline=None)
@given(dialect=DIALECTS, answer=ANSWERS, keep=st.floats(0, 1), step=st.integers(1, 80))
def test_a_stream_that_breaks_ends_in_an_error_and_nothing_else(dialect, answer, keep, step):
    data = engine_stream(answer, "reasoning")
    data = data[: data.rfind(b'"finish_reason":"')]
    data = data[: int(len(data) * keep)]
    subject = support.transcoder(dialect, fields_of(dialect))
    out = support.play(subject, data, step)
    assert subject.failure is not None
    if not subject.started:
        assert out == b""
        return
    out += subject.fail(GatewayError(Cause.UPSTREAM, "broken"))
    text = out.decode()
    assert "broken" in text
    assert "message_stop" not in text
    assert "response.completed" not in text
    if dialect == "responses":
        assert wrong(dialect, out) == []


@settings(max_examples=60, deadline=None)
@given(dialect=DIALECTS, data=st.binary(max_size=300), step=st.integers(1, 50))
def test_bytes_that_are_no_stream_are_a_failure_not_an_exception(dialect, data, step):
    subject = support.transcoder(dialect, fields_of(dialect))
    support.play(subject, data, step)
    assert subject.failure is not None


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 9) | st.sampled_from(["", "x", "stop", "abort"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(_KEYS), inner, max_size=5),
    max_leaves=12,
)


@settings(max_examples=150, deadline=None)
@given(dialect=DIALECTS, chunks=st.lists(VALUES, max_size=4), stream=st.booleans())
def test_chunks_of_any_shape_never_raise(dialect, chunks, stream):
    fields = fields_of(dialect, stream=stream)
    one, many = json.dumps({"choices": chunks}).encode(), [json.dumps(chunk).encode() for chunk in chunks]
    support.play(support.transcoder(dialect, fields), one if not stream else b"data: " + one + b"\n\n")
    support.play(support.transcoder(dialect, fields), b"".join(b"data: " + chunk + b"\n\n" for chunk in many))
