"""An answer that was cut because the model's window is full."""

from __future__ import annotations

import json
import random
from dataclasses import replace

import pytest

from gateway.dialects.ids import Ids
from gateway.dialects.registry import standard
from tests.unit.gateway.dialects import support
from tests.unit.gateway.dialects.support import client_events, decode, play, stream, whole

FULL = replace(support.VLLM, window=100)
USAGE = {"prompt_tokens": 90, "completion_tokens": 10, "total_tokens": 100}
BETA = {"anthropic-beta": "other-2025-01-01,model-context-window-exceeded-2025-08-26"}


def reason(headers, target, *, streamed, usage=USAGE, finish="length", **fields):
    dialect = standard()["messages"]
    request = decode("messages", {"stream": streamed, **fields}, headers)
    ids = Ids.create("messages", 1, "req_1", random.Random(1))
    subject = dialect.transcoder(request, dialect.encode_engine_request(request, target), target, ids, support.seal())
    said = {"content": "Hello"}
    data = stream(said, finish=finish, usage=usage) if streamed else whole(said, finish)
    if not streamed:
        data = json.dumps(json.loads(data) | {"usage": usage}).encode()
    out = play(subject, data)
    if not streamed:
        return json.loads(out)["stop_reason"]
    return next(event["delta"]["stop_reason"] for name, event in client_events(out) if name == "message_delta")


@pytest.mark.parametrize("streamed", [True, False])
def test_clients_that_know_the_reason_are_told(streamed):
    assert reason(BETA, FULL, streamed=streamed) == "model_context_window_exceeded"
    assert reason({}, FULL, streamed=streamed, betas=[BETA["anthropic-beta"]]) == "model_context_window_exceeded"
    assert reason({}, FULL, streamed=streamed) == "max_tokens"


@pytest.mark.parametrize("streamed", [True, False])
def test_only_a_full_window_is_one(streamed):
    assert reason(BETA, FULL, streamed=streamed, usage=USAGE | {"completion_tokens": 9}) == "max_tokens"
    assert reason(BETA, support.VLLM, streamed=streamed) == "max_tokens"
    assert reason(BETA, FULL, streamed=streamed, finish="stop") == "end_turn"
