from __future__ import annotations

import json
import random

import pytest

from gateway.dialects.counting import count_messages, count_responses, tokenize_body
from gateway.dialects.ids import Ids
from gateway.dialects.registry import DecodeOptions
from gateway.errors import GatewayError
from tests.unit.gateway.dialects import support


def count(dialect, fields, answer: bytes):
    request = dialect.decode_request(json.dumps(fields).encode(), {}, DecodeOptions())
    engine = dialect.encode_engine_request(request, support.VLLM)
    ids = Ids.create("messages", 1, "r", random.Random(1))
    subject = dialect.transcoder(request, engine, support.VLLM, ids, support.seal())
    return engine, subject, support.play(subject, answer)


def test_what_shapes_the_prompt_goes_to_the_tokenizer_as_it_is():
    chat = b'{"model":"m","temperature":0.5,"messages":[{"role":"user","content":"\\u00e9"}],"stream":true}'
    assert tokenize_body(chat) == b'{"model":"m","messages":[{"role":"user","content":"\\u00e9"}]}'
    assert tokenize_body(b"{}") == b"{}"


def test_messages():
    tool = {"name": "f", "input_schema": {"type": "object"}}
    fields = {"model": "m", "system": "S", "messages": [support.HI], "tools": [tool]}
    engine, subject, out = count(count_messages(), fields, b'{"count":33,"tokens":[1]}')
    assert engine.path == "/tokenize"
    assert json.loads(engine.body).keys() == {"model", "messages", "tools"}
    assert json.loads(out) == {"input_tokens": 33}
    assert subject.finished


def test_responses():
    _, _, out = count(count_responses(), {"model": "m", "input": "hi"}, b'{"count":2}')
    assert json.loads(out) == {"object": "response.input_tokens", "input_tokens": 2}


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"error":{"message":"x","code":500}}', b'{"count":"x"}'])
def test_no_count_is_a_failure(answer):
    _, subject, out = count(count_messages(), {"model": "m", "messages": [support.HI]}, answer)
    assert out == b""
    assert subject.failure is not None


def test_messages_are_still_required():
    with pytest.raises(GatewayError) as caught:
        count(count_messages(), {"model": "m"}, b"")
    assert caught.value.param == "messages"
