"""The judges of chaos and fuzz must see what is wrong."""

from __future__ import annotations

import json

import pytest

from tests.stress.clients import BrokenAnswerError, Outcome, check_stream, refusal
from tests.stress.fuzz import judge
from tests.stress.malformed import Case

DONE = b"data: [DONE]\n\n"
ERROR = b'data: {"error":{"message":"the engine failed","type":"server_error"}}\n\n'


def chunk(index: int = 0, finish: str | None = None) -> bytes:
    return b"data: %b\n\n" % json.dumps({"choices": [{"index": index, "delta": {}, "finish_reason": finish}]}).encode()


@pytest.mark.parametrize(
    ("stream", "choices", "outcome"),
    [
        (chunk() + chunk(finish="stop") + DONE, 1, Outcome.FULL),
        (chunk(0, "stop") + chunk(1, "length") + DONE, 2, Outcome.FULL),
        (chunk() + ERROR + DONE, 1, Outcome.ENDED),
        (chunk() + ERROR, 1, Outcome.ENDED),
    ],
)
def test_whole_streams(stream: bytes, choices: int, outcome: Outcome) -> None:
    assert check_stream(stream, choices) is outcome


@pytest.mark.parametrize(
    "stream",
    [
        chunk(),  # cut
        chunk() + DONE,  # no finish reason
        chunk(finish="stop"),  # no [DONE]
        chunk(finish="abort") + DONE,
        chunk(finish="stop") + chunk(finish="stop") + DONE,
        chunk(finish="stop") + DONE + chunk(),
        ERROR + chunk(),
        b'data: {"error":{"message":"in /usr/lib/site-packages/x.py","type":"server_error"}}\n\n',
        b'data: {"choi\n\n',
    ],
)
def test_broken_streams(stream: bytes) -> None:
    with pytest.raises((BrokenAnswerError, ValueError)):
        check_stream(stream, 1)


@pytest.mark.parametrize(
    ("status", "text"),
    [
        (200, '{"error":{"message":"a","type":"b"}}'),
        (500, "Internal Server Error"),
        (500, '{"error":{"message":"a\\nb","type":"c"}}'),
    ],
)
def test_improper_refusals(status: int, text: str) -> None:
    with pytest.raises((BrokenAnswerError, ValueError)):
        refusal(status, text)


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"HTTP/1.1 500 X\r\n\r\n{}",
        b"HTTP/1.1 400 X\r\n\r\n<h1>Bad</h1>",
        b'HTTP/1.1 400 X\r\n\r\n{"error":{"message":"Traceback","type":"a"}}',
        b"SSH-2.0-x\r\n\r\n",
    ],
)
def test_improper_answers_to_fuzz(answer: bytes) -> None:
    with pytest.raises((BrokenAnswerError, ValueError)):
        judge(Case("a case", b"POST / HTTP/1.1\r\n\r\n"), answer)


def test_silence_after_half_a_request_is_fine() -> None:
    assert judge(Case("half", b"POST /", incomplete=True), b"") == "silence"
