"""The everyday Chat request: what is added to its bytes, and when it takes the careful path."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.dialects.fields import session_of
from gateway.dialects.registry import DecodeOptions, standard
from tests.unit.gateway.dialects.support import VLLM, decode, encode, sent

PLAIN = replace(VLLM, model="m")


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("effort", [None, "max"])
@pytest.mark.parametrize("salt", [None, 'a"b'])
def test_what_the_pool_wants_is_added_at_the_end(stream, effort, salt):
    request = decode("chat", {"stream": stream})
    assert request.direct
    target = replace(PLAIN, default_effort=effort, cache_salt=salt)
    engine = encode("chat", {"stream": stream}, target)
    added = {"reasoning_effort": effort, "cache_salt": salt}
    if stream:
        added["stream_options"] = {"include_usage": True}
    wanted = json.loads(request.body) | {name: value for name, value in added.items() if value is not None}
    assert json.loads(engine.body) == wanted
    assert engine.body.startswith(request.body[:-1])
    assert (engine.effort, engine.headers) == (effort, {})


def test_nothing_to_add_keeps_the_bytes():
    request = decode("chat", {})
    assert encode("chat", {}, PLAIN).body == request.body


def test_an_effort_given_later_is_mapped_and_told():
    request = decode("chat", {})
    request.reasoning.effort = "medium"
    engine = standard()["chat"].encode_engine_request(request, PLAIN)
    assert json.loads(engine.body)["reasoning_effort"] == "high"
    assert engine.headers["x-gateway-reasoning-effort"] == "high;requested=medium"


@pytest.mark.parametrize("dialect", ["chat", "completions", "responses", "messages"])
@pytest.mark.parametrize("name", ["x-session-affinity", "session_id", "conversation_id", "x-claude-code-session-id"])
def test_a_client_may_name_its_conversation_in_a_header(dialect, name):
    assert decode(dialect, {}, {name: "s"}).session == "s"
    assert decode(dialect, {}).session is None


def test_the_body_names_the_conversation_before_the_headers():
    user = {"metadata": {"user_id": json.dumps({"session_id": "body"})}}
    assert decode("messages", user, {"session_id": "header"}).session == "body"
    assert session_of({"conversation_id": "b", "x-session-affinity": "a"}) == "a"


def test_the_default_effort_goes_to_every_dialects_engine():
    for dialect in ("chat", "responses"):
        assert sent(dialect, {}, replace(PLAIN, default_effort="max"))["reasoning_effort"] == "max"


@pytest.mark.parametrize("key", ["model", "mod\\u0065l"])
@pytest.mark.parametrize("order", [("m", "hidden"), ("hidden", "m")])
def test_a_model_named_twice_is_named_once_to_the_engine(key, order):
    """Engines take the last of two; the client was allowed what we found."""
    first, last = order
    body = f'{{"model":"{first}","messages":[{{"role":"user","content":"x"}}],"{key}":"{last}"}}'.encode()
    chat = standard()["chat"]
    request = chat.decode_request(body, {}, DecodeOptions())
    assert request.model == last
    engine = chat.encode_engine_request(request, replace(VLLM, model="served"))
    assert json.loads(engine.body, object_pairs_hook=list).count(("model", "served")) == 1
    assert json.loads(engine.body)["model"] == "served"
    assert b"hidden" not in engine.body
