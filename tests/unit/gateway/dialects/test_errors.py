from __future__ import annotations

import json

import pytest

from gateway.dialects.registry import Registry, standard
from gateway.errors import Cause, GatewayError
from tests.conformance.check_messages import validate_error_body

DIALECTS = ["chat", "completions", "responses", "messages"]


@pytest.mark.parametrize("cause", list(Cause))
@pytest.mark.parametrize("dialect", DIALECTS)
def test_every_cause_has_the_dialects_envelope(dialect, cause):
    error = GatewayError(cause, "no", param="p", retry_after_s=1.2)
    status, headers, body = standard()[dialect].encode_error(error, "req_1")
    assert validate_error_body("anthropic" if dialect == "messages" else "openai", status, json.loads(body)) == []
    assert headers["x-request-id"] == headers["request-id"] == "req_1"
    assert headers["retry-after"] == "2"
    assert headers["content-type"] == "application/json"


@pytest.mark.parametrize(
    ("cause", "openai", "anthropic", "kind"),
    [
        (Cause.OVERLOADED, 503, 529, "overloaded_error"),
        (Cause.QUOTA, 429, 402, "billing_error"),
        (Cause.UPSTREAM, 500, 500, "api_error"),
        (Cause.TIMEOUT, 504, 504, "timeout_error"),
        (Cause.MODEL_NOT_FOUND, 404, 404, "not_found_error"),
        (Cause.METHOD, 405, 405, "invalid_request_error"),
    ],
)
def test_statuses(cause, openai, anthropic, kind):
    error = GatewayError(cause, "no")
    assert standard()["chat"].encode_error(error, "r")[0] == openai
    status, _, body = standard()["messages"].encode_error(error, "r")
    assert (status, json.loads(body)["error"]["type"]) == (anthropic, kind)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [(Cause.OVERLOADED, "true"), (Cause.RATE_LIMIT, "true"), (Cause.QUOTA, "false"), (Cause.BAD_REQUEST, "false")],
)
def test_whether_to_try_again(cause, expected):
    assert standard()["chat"].encode_error(GatewayError(cause, "no"), "r")[1]["x-should-retry"] == expected


@pytest.mark.parametrize(
    ("numbers", "words"),
    [
        ((250000, 200000), "prompt is too long: 250000 tokens > 200000 maximum"),
        (
            (190000, 20000, 200000),
            (
                "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, "
                "decrease input length or `max_tokens` and try again"
            ),
        ),
        ((250000, 20000, 200000), "prompt is too long: 250000 tokens > 200000 maximum"),
        ((), "prompt is too long: too many"),
    ],
)
def test_the_words_of_an_overflow(numbers, words):
    error = GatewayError(Cause.CONTEXT_LENGTH, "too many", numbers=numbers)
    assert json.loads(standard()["messages"].encode_error(error, "r")[2])["error"]["message"] == words
    assert json.loads(standard()["chat"].encode_error(error, "r")[2])["error"]["code"] == "context_length_exceeded"


def test_codex_reads_the_delay_from_the_message():
    error = GatewayError(Cause.RATE_LIMIT, "Too many requests.", retry_after_s=1.5)
    message = json.loads(standard()["responses"].encode_error(error, "r")[2])["error"]["message"]
    assert message == "Too many requests. Please try again in 2s."


def test_the_registry_is_written_once():
    registry, chat = Registry(), standard()["chat"]
    registry.register(chat)
    with pytest.raises(ValueError, match="twice"):
        registry.register(chat)
    assert list(standard()) == DIALECTS
