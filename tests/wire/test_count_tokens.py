"""Counting a prompt: what the engine is asked to render, and the forms of the answer."""

import asyncio
import json
from typing import Any

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import Answer, Asked, Engine, completes, engine, response, says

TOOL = {"name": "f", "description": "Does it.", "input_schema": {"type": "object", "properties": {}}}


def tokenizes() -> Answer:
    """One token a byte of the messages and tools, in the form of both engines."""

    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if asked.path != "/tokenize":
            await completes()(made, reader, writer, asked)
            return
        count = len(json.dumps([asked.body["messages"], asked.body.get("tools")]))
        writer.write(response(200, {"count": count, "max_model_len": 4096, "tokens": [1] * count}))

    return answer


def rendered(made: Engine) -> dict[str, Any]:
    return next(asked.body for asked in reversed(made.asked) if asked.path == "/tokenize")


async def count(one: Running, path: str, status: int = 200, **body: Any) -> Any:
    async with one.client.post(f"{one.url}/v1/{path}", json={"model": "glm", **body}) as answer:
        assert answer.status == status, await answer.text()
        assert answer.headers["x-request-id"]
        return await answer.json()


async def test_messages_are_counted_as_the_pool_renders_them() -> None:
    messages = [{"role": "user", "content": "hi"}]
    async with engine(tokenizes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        small = await count(one, "messages/count_tokens", messages=messages)
        assert set(small) == {"input_tokens"}
        asked = {"system": "You are long. " * 20, "tools": [TOOL], "thinking": {"type": "adaptive"}}
        large = await count(one, "messages/count_tokens?beta=true", messages=messages, **asked)
        assert 0 < small["input_tokens"] < large["input_tokens"]
        body = rendered(made)
        assert [message["role"] for message in body["messages"]] == ["system", "user"]
        assert body["tools"][0]["function"]["name"] == "f"
        assert body["chat_template_kwargs"] == {"reasoning_effort": "high"}
        assert set(body) <= {"model", "messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort"}
        assert not made.chats
        await one.settled()


async def test_a_count_is_no_generation() -> None:
    async with engine(tokenizes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        await count(one, "messages/count_tokens", messages=[{"role": "user", "content": "hi"}])
        await one.settled()
        record = one.app.telemetry.recent[-1]
        assert (record.status, record.prompt_tokens, record.completion_tokens, record.first_token) == (200, 0, 0, 0.0)


async def test_errors_take_the_form_of_messages() -> None:
    async with engine(tokenizes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        error = await count(one, "messages/count_tokens", 400, messages=[])
        assert (error["type"], error["error"]["type"]) == ("error", "invalid_request_error")
        error = await count(one, "messages/count_tokens", 404, messages=[{"role": "user", "content": "x"}], model="no")
        assert error["error"]["type"] == "not_found_error"
        async with one.client.get(f"{one.url}/v1/messages/count_tokens") as answer:
            assert answer.status == 405
            assert (await answer.json())["type"] == "error"


async def test_an_engine_that_does_not_count_is_an_error() -> None:
    for script in (says(response(200, {"tokens": []})), says(response(500, {"error": "broken"}))):
        async with engine(script) as made, gateway(config_of([pool_of(made.url)], retry={"attempts": 1})) as one:
            error = await count(one, "messages/count_tokens", 500, messages=[{"role": "user", "content": "hi"}])
            assert error["error"]["type"] == "api_error"


async def test_responses_are_counted_with_their_earlier_turns() -> None:
    async with engine(tokenizes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        alone = await count(one, "responses/input_tokens", input="two")
        assert alone["object"] == "response.input_tokens"
        first = await count(one, "responses", input="one")
        both = await count(one, "responses/input_tokens", input="two", previous_response_id=first["id"])
        assert both["input_tokens"] > alone["input_tokens"]
        assert [message["content"] for message in rendered(made)["messages"]] == ["one", "Hello", "two"]
        await one.settled()
