from __future__ import annotations

import json

import pytest

from backends.contracts import Fault
from tests.unit.gateway.dialects import support
from tests.unit.gateway.dialects.support import transcoder, whole


def test_an_answer_that_is_right_keeps_its_bytes():
    body = whole({"content": "hello", "unknown": [1.50]})
    assert support.play(transcoder("chat", {"model": "glm"}), body, 7) == body


@pytest.mark.parametrize(
    ("message", "finish", "path", "expected"),
    [
        ({"content": "x", "reasoning": "r"}, "stop", ("message", "reasoning_content"), "r"),
        ({"content": "x", "tool_calls": []}, "tool_calls", ("finish_reason",), "stop"),
        ({"reasoning_content": "r"}, "length", ("message", "content"), None),
        (
            {"content": "", "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": {"x": 1}}}]},
            "stop",
            ("finish_reason",),
            "tool_calls",
        ),
    ],
)
def test_what_must_change_changes(message, finish, path, expected):
    got = json.loads(support.play(transcoder("chat", {}), whole(message, finish)))["choices"][0]
    for key in path:
        got = got[key]
    assert got == expected


def test_the_engines_metadata_is_not_the_clients():
    body = whole({"content": "x"}).replace(b"{", b'{"metadata":{"weight_versions":[{"start":0}]},', 1)
    got = json.loads(support.play(transcoder("chat", {"model": "glm"}), body))
    assert "metadata" not in got
    assert got["choices"][0]["message"]["content"] == "x"


def test_unknown_fields_survive_a_change():
    got = json.loads(support.play(transcoder("chat", {}), whole({"content": "x", "reasoning": "r", "new": {"a": 1}})))
    assert got["choices"][0]["message"]["new"] == {"a": 1}
    assert got["model"] == "m"


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"error":{"message":"x","code":500}}', b'{"choices":3}'])
@pytest.mark.parametrize("dialect", ["chat", "completions", "responses", "messages"])
def test_no_answer_is_a_failure(dialect, body):
    subject = transcoder(dialect, {})
    assert support.play(subject, body) == b""
    assert subject.failure is not None
    assert not subject.started


@pytest.mark.parametrize("reason", [None, "abort"])
def test_an_answer_without_a_proper_end_is_a_failure(reason):
    subject = transcoder("chat", {})
    support.play(subject, whole({"content": "x"}, reason))
    assert subject.failure is not None


def test_bytes_that_are_not_utf8_are_no_answer():
    subject = transcoder("chat", {"model": "glm"})
    assert support.play(subject, whole({"content": "hello"}).replace(b"hello", b"hel\xfflo")) == b""
    assert subject.failure.fault is Fault.PROTOCOL
