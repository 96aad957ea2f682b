"""Contracts in force: what a request finds when its pools can do all of it, some of it, or nothing."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import Answer, Asked, Engine, completes, engine, response, says

GLM = {"reasoning": True, "reasoning_off": False, "efforts": ["low", "high", "max"], "default_effort": "max"}
MEDIUM = {"reasoning": True, "reasoning_off": True, "efforts": ["low", "medium", "high"], "default_effort": "medium"}
TEXT = {"modalities": ["text"]}
IMAGES = {"modalities": ["text", "image"]}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
URL = f"data:image/png;base64,{PIXEL}"
HI = {"role": "user", "content": "hi"}
FUNCTION = {"name": "f", "parameters": {"type": "object", "properties": {}}}
REQUIRED = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required"}
SCHEMA = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}}

CHAT_IMAGE = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": URL}}]}]}
RESPONSES_IMAGE = {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": URL}]}]}
SOURCE = {"type": "base64", "media_type": "image/png", "data": PIXEL}
MESSAGES_IMAGE = {"max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "image", "source": SOURCE}]}]}


def served(made: Engine) -> list[Asked]:
    """Clients' requests, without what probing asks."""
    return [asked for asked in made.asked if asked.body and asked.headers.get("user-agent") != "headrace-probe"]


async def ask(one: Running, path: str = "v1/chat/completions", status: int = 200, **body: Any) -> tuple[Any, Any]:
    """Headers and body of an answer; a small question when `body` has none."""
    prompt = {} if {"messages", "input", "prompt"} & set(body) else {"messages": [HI]}
    async with one.client.post(f"{one.url}/{path}", json={"model": "glm", **prompt, **body}) as answer:
        assert answer.status == status, await answer.text()
        return answer.headers, await answer.json()


# --- adapted, and the client told ---


async def test_an_effort_that_is_not_real_becomes_the_next_stronger_one() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url, contract=GLM)])) as one:
        headers, _ = await ask(one, reasoning_effort="medium")
        assert headers["x-gateway-adapted"] == "reasoning_effort=high;requested=medium"
        assert headers["x-gateway-reasoning-effort"] == "high;requested=medium"
        assert served(made)[0].body["reasoning_effort"] == "high"
        await one.settled()
        record = one.app.telemetry.recent[-1]
        assert record.adaptations == ("reasoning_effort=high;requested=medium",)
        [attributes] = [about for _, event, about in record.events or () if event == "adapted"]
        assert attributes == {
            "headrace.adaptation": "reasoning_effort=high;requested=medium",
            "headrace.pool": "a",
            "headrace.adaptation.reason": "the pool would run medium at max",
        }


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("v1/responses", {"input": "hi", "reasoning": {"effort": "medium"}}, "reasoning.effort"),
        ("v1/messages", {"max_tokens": 9, "output_config": {"effort": "medium"}}, "output_config.effort"),
    ],
)
async def test_the_client_is_told_in_its_own_words(path: str, body: dict[str, Any], field: str) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url, contract=GLM)])) as one:
        headers, _ = await ask(one, path, **body)
        assert headers["x-gateway-adapted"] == f"{field}=high;requested=medium"
        assert headers["x-gateway-reasoning-effort"] == "high;requested=medium"


async def test_stop_strings_are_matched_where_the_engine_would_match_too_much() -> None:
    contract = {"reasoning": True, "stop_scope": "everything"}
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url, contract=contract)])) as one:
        headers, body = await ask(one, stop=["llo"])
        assert headers["x-gateway-adapted"] == "stop=gateway;requested=engine"
        assert "stop" not in served(made)[0].body
        assert body["choices"][0]["message"]["content"] == "He"


async def test_a_request_that_is_served_as_it_is_says_nothing() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url, contract=GLM)])) as one:
        for body in ({}, {"reasoning_effort": "high"}):
            headers, _ = await ask(one, **body)
            assert "x-gateway-adapted" not in headers


# --- rerouted to the pool that can ---


@pytest.mark.parametrize(
    ("first", "body", "why"),
    [
        (TEXT, CHAT_IMAGE, "image input is not supported"),
        ({"tool_modes": ["auto"]}, REQUIRED, "a required tool call is not supported"),
        ({"formats": ["json_object"]}, SCHEMA, "output by JSON schema is not supported"),
        ({"logprobs": 2}, {"logprobs": True, "top_logprobs": 5}, "gives at most 2 log probabilities per token"),
        ({"max_output": 100}, {"max_tokens": 200}, "answers with at most 100 tokens"),
    ],
    ids=["image", "tools", "schema", "logprobs", "output"],
)
async def test_another_pool_serves_it_as_asked(first: dict[str, Any], body: dict[str, Any], why: str) -> None:
    async with engine(completes()) as cannot, engine(completes()) as can:
        pools = [pool_of(cannot.url, contract=first), pool_of(can.url, name="b", contract=IMAGES)]
        async with gateway(config_of(pools)) as one:
            headers, _ = await ask(one, **body)
            assert headers["x-gateway-pool"] == "b"
            assert "x-gateway-adapted" not in headers
            assert served(cannot) == []
            await one.settled()
            decision = one.app.telemetry.recent[-1].decision
            assert decision is not None
            assert decision.explain is not None
            assert {entry.replica: entry.filtered for entry in decision.explain()} == {"a/0": why, "b/0": ""}


async def test_a_pool_that_changes_nothing_is_preferred() -> None:
    async with engine(completes()) as first, engine(completes()) as second:
        pools = [pool_of(first.url, contract=GLM), pool_of(second.url, name="b", contract=MEDIUM)]
        async with gateway(config_of(pools)) as one:
            headers, _ = await ask(one, reasoning_effort="medium")
            assert headers["x-gateway-pool"] == "b"
            assert "x-gateway-adapted" not in headers


async def test_a_pool_that_would_change_the_answer_is_used_when_no_other_is_left() -> None:
    busy = says(response(503, {"error": {"message": "busy", "code": 503}}))
    async with engine(completes()) as spare, engine(busy) as exact:
        pools = [pool_of(spare.url, contract=GLM), pool_of(exact.url, name="b", contract=MEDIUM)]
        async with gateway(config_of(pools)) as one:
            headers, _ = await ask(one, reasoning_effort="medium")
            assert len(served(exact)) == 1
            assert headers["x-gateway-pool"] == "a"
            assert headers["x-gateway-adapted"] == "reasoning_effort=high;requested=medium"


# --- refused, with the field and every pool's reason ---


REASONS = "a: image input is not supported by its rust frontend; b: image input is not supported."


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("v1/chat/completions", CHAT_IMAGE, "messages"),
        ("v1/responses", RESPONSES_IMAGE, "input"),
        ("v1/messages", MESSAGES_IMAGE, "messages"),
    ],
)
async def test_a_refusal_names_the_field_and_every_pools_reason(path: str, body: dict[str, Any], field: str) -> None:
    async with engine(completes()) as made, engine(completes()) as other:
        pools = [pool_of(made.url, contract={**TEXT, "frontend": "rust"}), pool_of(other.url, name="b", contract=TEXT)]
        async with gateway(config_of(pools)) as one:
            headers, told = await ask(one, path, status=400, **body)
            assert told["error"]["type"] == "invalid_request_error"
            assert told["error"]["message"] == f"No pool of `glm` can serve `{field}` of this request: {REASONS}"
            if path == "v1/messages":
                assert told["type"] == "error"
            else:
                assert (told["error"]["param"], told["error"]["code"]) == (field, "unsupported_value")
            assert headers["x-should-retry"] == "false"
            assert served(made) == served(other) == []
            await one.settled()


# --- endpoints that only some engines have ---


VLLM_ONLY = {
    "inference/v1/generate": {"token_ids": [1], "sampling_params": {"max_tokens": 1}},
    "generative_scoring": {"queries": ["a"], "items": ["b"]},
    "v1/chat/completions/render": {"messages": [HI]},
    "v1/completions/render": {"prompt": "hi"},
}


def answers_anything() -> Answer:
    async def answer(_: Engine, __: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        writer.write(response(200, {"path": asked.path, "model": asked.body.get("model")}))

    return answer


@pytest.mark.parametrize("path", VLLM_ONLY)
async def test_what_only_vllm_has_goes_to_vllm(path: str) -> None:
    async with engine(answers_anything()) as sglang, engine(answers_anything()) as vllm:
        pools = [pool_of(sglang.url, engine="sglang"), pool_of(vllm.url, name="b")]
        async with gateway(config_of(pools)) as one:
            headers, _ = await ask(one, path, **VLLM_ONLY[path])
            assert headers["x-gateway-pool"] == "b"
            assert [asked.path for asked in served(vllm)] == [f"/{path}"]
            assert served(sglang) == []


@pytest.mark.parametrize("path", VLLM_ONLY)
async def test_and_is_not_found_elsewhere(path: str) -> None:
    async with engine(answers_anything()) as sglang, gateway(config_of([pool_of(sglang.url, engine="sglang")])) as one:
        _, told = await ask(one, path, status=404, **VLLM_ONLY[path])
        assert told["error"]["type"] == "invalid_request_error"
        assert told["error"]["message"] == f"No pool of `glm` can serve this request: a: has no /{path}."
        assert served(sglang) == []


async def test_retry_after_of_an_engine_reaches_the_client() -> None:
    busy = json.dumps({"error": {"message": "busy", "code": 503}}).encode()
    head = b"HTTP/1.1 503 X\r\ncontent-type: application/json\r\nretry-after: 7\r\n"
    async with engine(says(head + b"content-length: %d\r\n\r\n" % len(busy) + busy)) as made:
        async with gateway(config_of([pool_of(made.url)])) as one:
            headers, _ = await ask(one, status=503)
            assert headers["retry-after"] == "7"
