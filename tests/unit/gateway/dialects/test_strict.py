"""Arguments of strict tools are JSON objects, or the answer is an error."""

from __future__ import annotations

import pytest

from backends.contracts import Fault
from tests.unit.gateway.dialects.support import SGLANG, VLLM, play, stream, tool, transcoder, whole

SCHEMA = {"type": "object", "properties": {}}
DIALECTS = ("chat", "responses", "messages")
BROKEN = ('{"city": "Par', "[1]", '"Paris"', "{} {}")


def asked(dialect: str, *, strict: bool | None, streamed: bool) -> dict:
    function = {"name": "f"} if strict is None else {"name": "f", "strict": strict}
    tools = {
        "chat": {"type": "function", "function": function | {"parameters": SCHEMA}},
        "responses": {"type": "function", **function, "parameters": SCHEMA},
        "messages": function | {"input_schema": SCHEMA},
    }
    return {"tools": [tools[dialect]], "stream": streamed}


def answer(arguments: str, *, streamed: bool, finish: str = "tool_calls") -> bytes:
    call = tool(0, id="call_1", name="f", args=arguments)
    return stream(call, finish=finish) if streamed else whole(call, finish)


def run(dialect: str, arguments: str, *, strict: bool | None, streamed: bool, finish: str = "tool_calls"):
    subject = transcoder(dialect, asked(dialect, strict=strict, streamed=streamed))
    return subject, play(subject, answer(arguments, streamed=streamed, finish=finish))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("arguments", BROKEN)
@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_is_no_object_is_a_failure_of_the_answer(dialect, arguments, streamed):
    subject, out = run(dialect, arguments, strict=True, streamed=streamed)
    assert subject.failure is not None
    assert subject.failure.fault is Fault.ANSWER
    assert b"tool_calls" not in out or streamed
    assert not any(end in out for end in (b'"finish_reason":"tool', b"response.completed", b"message_stop"))


@pytest.mark.parametrize("streamed", [True, False])
@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize(
    ("arguments", "strict", "finish"),
    [
        ('{"city": "Paris"}', True, "tool_calls"),
        ("", True, "tool_calls"),  # a call without arguments takes none
        ('{"city": "Par', True, "length"),  # cut, and said to be
        ('{"city": "Par', False, "tool_calls"),
        ('{"city": "Par', None, "tool_calls"),
    ],
)
def test_everything_else_is_as_the_model_said(dialect, arguments, strict, finish, streamed):
    subject, out = run(dialect, arguments, strict=strict, streamed=streamed, finish=finish)
    assert subject.failure is None
    assert out


@pytest.mark.parametrize("target", [VLLM, SGLANG], ids=["vllm", "sglang"])
def test_one_broken_call_of_two_is_enough(target):
    subject = transcoder("chat", asked("chat", strict=True, streamed=True), target)
    first, second = tool(0, id="a", name="f", args="{}"), tool(1, id="b", name="f", args='{"x"')
    play(subject, stream(first, second, finish="tool_calls"))
    assert subject.failure is not None
