"""Everyday streams: events taken as they are, and chunks passed with their framing, tell what the long way does."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.contracts import EngineFailure
from gateway.dialects.passthrough import PassThrough
from tests.unit.gateway.dialects.support import play, transcoder

ASK = {"stream": True, "stream_options": {"include_usage": True}}
HEAD = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
COUNTS = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}

DELTAS = st.sampled_from(
    [
        {"role": "assistant", "content": ""},
        {"role": "assistant", "content": "Hi"},
        {"content": " there"},
        {"content": " é"},
        {"content": ""},
        {"content": None},
        {},
        {"reasoning": "hm"},
        {"reasoning_content": None, "content": "x"},
        {"reasoning_content": "hm"},
        {"refusal": "no"},
        {"tool_calls": [{"index": 0, "id": "call_1", "function": {"name": "f", "arguments": "{}"}}]},
    ]
)
CHOICES = st.builds(
    lambda delta, finish, more: {"index": 0, "delta": delta, "finish_reason": finish} | more,
    DELTAS,
    st.sampled_from([None, None, None, "stop", "length"]),
    st.sampled_from([{}, {"logprobs": None}, {"token_ids": None}, {"stop_reason": 3}]),
)
EVENTS = st.one_of(
    st.builds(lambda choice: HEAD | {"choices": [choice]}, CHOICES),
    st.builds(lambda choice: HEAD | {"choices": [choice], "usage": None, "prompt_token_ids": None}, CHOICES),
    st.builds(lambda choice: HEAD | {"choices": [choice], "usage": COUNTS}, CHOICES),
    st.sampled_from(
        [
            HEAD | {"choices": [], "usage": COUNTS},
            HEAD | {"choices": [], "usage": COUNTS | {"prompt_tokens_details": {"cached_tokens": 99}}},
            HEAD | {"id": "other", "choices": []},
            HEAD | {"metadata": {}, "choices": []},
            {"error": {"message": "broken"}},
        ]
    ),
)


def everyday(*texts: str, finish: str = "stop") -> list[dict]:
    said = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    events = [HEAD | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in said]
    events.append(HEAD | {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    return [*events, HEAD | {"choices": [], "usage": COUNTS}]


def written(events: list[dict], *, ascii_only: bool = True) -> bytes:
    lines = [json.dumps(event, separators=(",", ":"), ensure_ascii=ascii_only) for event in events]
    return "".join(f"data: {line}\n\n" for line in [*lines, "[DONE]"]).encode()


def careful(**fields: object) -> PassThrough:
    subject = transcoder("chat", ASK | fields)
    assert isinstance(subject, PassThrough)
    subject._direct = None
    return subject


def told(out: bytes) -> list[object]:
    """The events, less the zero that only the long way adds to counts that do not have it."""
    events = []
    for frame in out.decode().split("\n\n"):
        data = frame.removeprefix("data: ")
        event = json.loads(data) if data.startswith("{") else data
        if isinstance(event, dict) and event.get("usage"):
            event["usage"].pop("completion_tokens_details", None)
        events.append(event)
    return events


@given(events=st.lists(EVENTS, max_size=6), whole=st.booleans())
def test_taken_as_they_are_or_looked_into(events: list[dict], whole: bool) -> None:
    data = written(everyday("a", "b")[:-2] * whole + events)
    short, long = transcoder("chat", ASK), careful()
    assert told(play(short, data)) == told(play(long, data))
    facts = ("started", "finished", "finish", "usage", "failure")
    assert [getattr(short, fact) for fact in facts] == [getattr(long, fact) for fact in facts]


def relayed(subject: PassThrough, data: bytes) -> bytes:
    """Each event in a chunk of its own, as engines send them; what goes out, chunk by chunk."""
    out = b""
    for event in data.split(b"\n\n")[:-1]:
        size = b"%x\r\n" % (len(event) + 2)
        chunk = size + event + b"\n\n\r\n"
        passed = subject.relay(chunk, len(size)) if subject.started else b""
        if passed:
            size, _, rest = passed.partition(b"\r\n")
            assert rest.endswith(b"\r\n")
            assert int(size, 16) == len(rest) - 2
            out += rest[:-2]
        else:
            out += subject.feed(event + b"\n\n")
    return out + subject.eof()


@given(texts=st.lists(st.text(max_size=5), max_size=8), ascii_only=st.booleans(), name=st.sampled_from(["m", "alias"]))
def test_chunks_that_keep_their_framing(texts: list[str], ascii_only: bool, name: str) -> None:
    data = written(everyday(*texts), ascii_only=ascii_only)
    subject, same = careful(model=name), careful(model=name)
    assert relayed(subject, data) == play(same, data)
    direct = transcoder("chat", ASK | {"model": name})
    assert isinstance(direct, PassThrough)
    assert told(relayed(direct, data)) == told(play(careful(model=name), data))


PLAIN = (
    b'data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,'
    b'"delta":{"content":"a"},"finish_reason":null}]}\n\n'
)


@pytest.mark.parametrize(
    "payload",
    [
        PLAIN.replace(b'"a"', b'"\xff"'),
        PLAIN.replace(b'"a"', b'"\\ud83d"'),
        PLAIN + b"data: [DONE]\n\n",
        PLAIN.replace(b"null}]}\n\n", b'"stop"}]}\n\n'),
        b'data: {"error":{"message":"x"}}\n\n',
    ],
)
def test_what_has_to_be_fed(payload: bytes) -> None:
    subject = transcoder("chat", ASK)
    assert isinstance(subject, PassThrough)
    subject.feed(written(everyday("a", "b")[:3]).removesuffix(b"data: [DONE]\n\n"))
    for chunk, passes in ((payload, False), (PLAIN, True)):
        size = b"%x\r\n" % len(chunk)
        assert bool(subject.relay(size + chunk + b"\r\n", len(size))) is passes


def test_the_short_way_is_taken() -> None:
    subject = transcoder("chat", ASK)
    assert isinstance(subject, PassThrough)
    data = written(everyday("a", "b"))
    assert play(subject, data) == data
    assert subject._direct is not None
    assert not isinstance(subject.failure, EngineFailure)
