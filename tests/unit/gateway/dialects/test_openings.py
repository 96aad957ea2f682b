"""Conversations that come again are read as if they had not been seen before."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.dialects import direct
from gateway.dialects.direct_types import Asked
from gateway.dialects.openings import Openings

_marks = st.sampled_from(['},{"role":"user"', '"messages":[', "]", "\x01"])
_texts = st.text(alphabet='ab"\\]},{:é\n ', max_size=6) | _marks
_messages = st.lists(st.tuples(st.sampled_from(["user", "assistant", "system", "tool"]), _texts), max_size=4)
_fields = st.dictionaries(
    st.sampled_from(["model", "stream", "max_tokens", "temperature", "stop", "messages"]),
    st.sampled_from(["m", True, 5, 0.5, [], [{"role": "user", "content": "x"}]]),
    max_size=3,
)


def _written(before: dict[str, Any], messages: list[tuple[str, str]], after: dict[str, Any], cut: int) -> bytes:
    """A body with fields on both sides of its messages, some of them twice; the last `cut` bytes are lost."""
    told = [{"role": role, "content": text} for role, text in messages]
    parts = [json.dumps(fields, separators=(",", ":"))[1:-1] for fields in (before, {"messages": told}, after)]
    body = b"{" + ",".join(part for part in parts if part).encode() + b"}"
    return body[: len(body) - cut]


def _plainly(body: bytes) -> Asked | None:
    try:
        return msgspec.json.decode(body, type=Asked)
    except msgspec.MsgspecError:
        return None


# A field between two arrays belongs to no opening.
_TWICE = ({"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}, [("user", "a"), ("user", "b")], {}, 0)


@example([_TWICE], 1, b'"messages"')
@example([_TWICE], 1, b'"\\u006dessages"')
@given(
    st.lists(st.tuples(_fields, _messages, _fields, st.sampled_from([0, 0, 0, 1, 3])), min_size=1, max_size=3),
    st.integers(0, 3),
    st.sampled_from([b'"messages"', b'"\\u006dessages"', b'"message\\u0073" ']),
)
def test_what_is_read_is_what_a_whole_read_finds(asked, turns, key):
    """`key` is how the messages' key is spelled, but for the first."""
    openings = Openings()
    for before, messages, after, cut in asked:
        for told in (messages, [*messages, *messages[:turns]], [*messages, ("user", "again")]):
            first, *more = _written({"model": "m", **before}, told, after, cut).split(b'"messages"')
            body = key.join([b'"messages"'.join((first, *more[:1])), *more[1:]])
            opening = openings.find(body)
            wanted = _plainly(body)
            found = wanted if opening is None else _plainly(openings.unread(body, opening))
            assert (found is None) == (wanted is None)
            if found is None or wanted is None:
                continue
            openings.learn(body, opening)
            found.messages = wanted.messages
            assert found == wanted


def _conversation(turns: int, of: str = "") -> bytes:
    told = [{"role": "user", "content": f"{of} {turn} " + "x" * 20_000} for turn in range(turns)]
    return json.dumps({"model": "m", "messages": told, "max_tokens": turns}, separators=(",", ":")).encode()


def test_a_later_turn_reads_only_what_is_new(monkeypatch: pytest.MonkeyPatch):
    read: list[int] = []
    decode = msgspec.json.Decoder(Asked).decode

    def spy(body: bytes) -> Asked:
        read.append(len(body))
        return decode(body)

    monkeypatch.setattr(direct, "_asked", spy)
    monkeypatch.setattr(direct, "_openings", Openings())
    for turns in (2, 3, 4, 4):
        body = _conversation(turns)
        request = direct.read_direct(body)
        assert request is not None
        assert request.body == body
        assert request.max_output == turns
        assert request.traits.prompt_bytes == len(body)
    assert read[0] > 40_000
    assert all(size < 41_000 for size in read[1:])
    assert read[3] < 21_000


def test_what_is_remembered_is_bounded():
    openings = Openings()
    for of in range(100):
        openings.learn(_conversation(5, str(of)), None)
    kept = [of for of in range(100) if openings.find(_conversation(6, str(of))) is not None]
    assert kept == list(range(84, 100))
    for of in range(100):
        openings.learn(_conversation(60, str(of)), None)
    kept = [of for of in range(100) if openings.find(_conversation(61, str(of))) is not None]
    assert kept == [97, 98, 99]
