"""The Chat and Completions pass-through against streams that real engines sent."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from backends.contracts import Fault
from gateway.errors import Cause, GatewayError
from tests.conformance.assertions import summarise
from tests.conformance.check_chat import validate_chat_stream
from tests.conformance.offline import events_of
from tests.unit.gateway.dialects import support
from tests.unit.gateway.dialects.support import choice, raw_stream, stream, transcoder

STREAMS = Path(__file__).parents[3] / "data" / "streams"
FILES = sorted(path.name for path in STREAMS.glob("*chat*.sse") if "abort" not in path.name)
ASK = {"stream": True, "stream_options": {"include_usage": True}}
FUNCTION = {"type": "function", "function": {"name": "get_weather"}}


def fields_of(name: str) -> dict:
    fields = dict(ASK)
    if "_n2_" in name:
        fields["n"] = 2
    if "tools" in name:
        fields["tools"] = [FUNCTION]
    return fields


def target_of(name: str):
    return support.VLLM if name.startswith("vllm") else support.SGLANG


@pytest.mark.parametrize("name", FILES)
def test_what_engines_sent_is_valid_chat_however_it_is_cut(name):
    data, fields, target = (STREAMS / name).read_bytes(), fields_of(name), target_of(name)
    subject = transcoder("chat", fields, target)
    out = support.play(subject, data)
    events, done = events_of(out.decode())
    include = True if b'"usage":{' in data else None
    assert (
        validate_chat_stream([chunk for _, chunk in events], include_usage=include, n=fields.get("n", 1), done=done)
        == []
    )
    assert {chunk["model"] for _, chunk in events} == {"m"}
    before = summarise("chat", events_of(data.decode())[0])
    after = summarise("chat", events)
    assert (after["text"], after["reasoning"]) == (before["text"], before["reasoning"])
    assert [call["arguments"] for call in after["tools"]] == [call["arguments"] for call in before["tools"]]
    for step in (1, 3, 50, 333):
        assert support.play(transcoder("chat", fields, target), data, step) == out


def test_plain_events_keep_their_bytes():
    data = (STREAMS / "vllm_think2_chat_stream.sse").read_bytes()
    model = "smollm2-135m"
    subject = transcoder("chat", {**ASK, "model": model}, replace(support.VLLM, reasoning_field="reasoning"))
    events = data.replace(b'"reasoning":', b'"reasoning_content":').split(b"\n\n")
    out = support.play(subject, data).split(b"\n\n")
    assert out[1:-4] == events[1:-4]  # all deltas; role, finish and counts are looked into


def test_a_plain_chunk_is_handed_on_as_the_same_object():
    subject = transcoder("chat", {**ASK, "model": "glm"}, support.SGLANG)
    pieces = stream({"content": "a"}, {"content": "b"}).split(b"\n\n")
    for piece in pieces[:2]:
        subject.feed(piece + b"\n\n")
    chunk = pieces[2] + b"\n\n"
    assert subject.feed(chunk) is chunk


def test_nothing_goes_out_before_something_is_said():
    subject = transcoder("chat", ASK)
    pieces = stream({"content": "a"}).split(b"\n\n")
    assert subject.feed(pieces[0] + b"\n\n") == b""
    assert not subject.started
    assert subject.feed(pieces[1] + b"\n\n").count(b"data:") == 2
    assert subject.started


def test_counts_only_when_asked_for_and_always_known():
    data = stream({"content": "a"}, usage={"prompt_tokens": 5, "completion_tokens": 9, "reasoning_tokens": 2})
    subject = transcoder("chat", {"stream": True})
    assert b"usage" not in support.play(subject, data)
    assert (subject.usage.prompt, subject.usage.completion, subject.usage.reasoning) == (5, 9, 2)
    assert subject.finish == "end"


def test_counts_on_several_chunks_become_one_chunk_at_the_end():
    chunks = [
        {"choices": [choice({"content": text})], "usage": {"prompt_tokens": 1, "completion_tokens": i}}
        for i, text in enumerate("ab")
    ]
    events, done = events_of(support.play(transcoder("chat", ASK), raw_stream(*chunks)).decode())
    assert validate_chat_stream([chunk for _, chunk in events], include_usage=True, done=done) == []


def test_both_spellings_of_reasoning_are_one():
    data = stream({"reasoning": "r", "reasoning_content": "r"}, {"content": "x"})
    assert summarise("chat", support.client_events(support.play(transcoder("chat", ASK), data)))["reasoning"] == "r"


def test_half_a_surrogate_pair_waits_for_the_other_half():
    data = stream({"content": "a"}, {"content": "\ud83d"}, {"content": "\ude42"}, {"content": "b"})
    for dialect in ("chat", "messages", "responses"):
        out = support.play(transcoder(dialect, {"stream": True}), data)
        assert summarise(dialect, support.client_events(out))["text"] == "a🙂b"


@pytest.mark.parametrize(
    ("frame", "fault"),
    [
        ({"error": {"message": "/srv/x.py broke", "code": 500}}, Fault.ENGINE),
        ({"object": "error", "message": "full", "code": 503}, Fault.OVERLOADED),
        ({"error": {"message": "full", "type": "SERVICE_UNAVAILABLE", "code": 503}}, Fault.OVERLOADED),
        ({"unknown": 1}, Fault.PROTOCOL),
    ],
)
@pytest.mark.parametrize("dialect", ["chat", "completions", "messages", "responses"])
def test_an_error_frame_is_a_failure(dialect, frame, fault):
    subject = transcoder(dialect, {"stream": True})
    assert support.play(subject, f"data: {json.dumps(frame)}\n\ndata: [DONE]\n\n".encode()) == b""
    assert subject.failure is not None
    assert subject.failure.fault is fault
    assert "/srv" not in subject.failure.message


def test_an_aborted_answer_is_a_failure():
    subject = transcoder("chat", ASK, support.SGLANG)
    support.play(subject, (STREAMS / "sglang_chat_abort.sse").read_bytes().split(b"\n\n", 1)[1])
    assert subject.failure is not None


@pytest.mark.parametrize("end", [b"", b"data: [DONE]\n\n"])
def test_an_answer_without_a_finish_reason_is_truncated(end):
    subject = transcoder("chat", ASK)
    out = support.play(subject, stream({"content": "half"}, finish=None) + end)
    assert b"half" in out
    assert b"[DONE]" not in out
    assert subject.failure.fault is Fault.TRUNCATED
    assert subject.fail(GatewayError(Cause.UPSTREAM, "gone")).endswith(b"data: [DONE]\n\n")


def test_a_finish_reason_agrees_with_the_calls():
    fields = {**ASK, "tools": [FUNCTION]}
    called = stream(support.tool(0, id="a", name="get_weather", args="{}"), finish="stop")
    assert b'"finish_reason":"tool_calls"' in support.play(transcoder("chat", fields), called)
    assert b'"finish_reason":"stop"' in support.play(
        transcoder("chat", fields), stream({"content": "x"}, finish="tool_calls")
    )


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_completions_pass_through(engine):
    name = {"vllm": "vllm_compl_stream.sse", "sglang": "sglang_completions.sse"}[engine]
    data = (STREAMS / name).read_bytes()
    subject = transcoder("completions", {"stream": True})
    out = support.play(subject, data)
    chunks = [chunk for _, chunk in support.client_events(out)]
    assert {chunk["model"] for chunk in chunks} == {"m"}
    assert all(chunk["id"].startswith("cmpl-") for chunk in chunks)
    assert subject.finished
    assert out.endswith(b"data: [DONE]\n\n")
    assert support.play(transcoder("completions", {"stream": True}), data, 5) == out


@pytest.mark.parametrize("at", [0, 1, 5])
def test_bytes_that_are_not_utf8_end_a_stream(at):
    texts = [b"w%d" % number for number in range(6)]
    data = stream(*({"content": text.decode()} for text in texts)).replace(texts[at], b"\xff\xfe\xc3")
    subject = transcoder("chat", ASK)
    out = support.play(subject, data)
    assert subject.failure.fault is Fault.PROTOCOL
    assert b"\xff" not in out
    assert all(text in out for text in texts[:at])
