"""Reasoning given back for clients that drop it."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import DONE, ROLE, Answer, Asked, Engine, engine, event, finish, response, streams

TOOL = {"type": "object", "properties": {}}
CALL = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
ON = {"reasoning": {"vault": True}}


def thinks_and_calls() -> Answer:
    """The same answer streamed and whole."""
    streamed = streams(
        ROLE,
        event(delta={"reasoning": "Hm. "}),
        event(delta={"reasoning": "Yes."}),
        event(delta={"tool_calls": [{"index": 0, **CALL}]}),
        finish("tool_calls"),
        DONE,
    )
    message = {"role": "assistant", "content": None, "reasoning": "Hm. Yes.", "tool_calls": [CALL]}
    choices = [{"index": 0, "message": message, "finish_reason": "tool_calls"}]
    usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "glm", "choices": choices}

    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if asked.body.get("stream"):
            await streamed(made, reader, writer, asked)
        else:
            writer.write(response(200, whole | {"usage": usage}))

    return answer


async def chat(one: Running, messages: list[Any], **body: Any) -> None:
    tools = [{"type": "function", "function": {"name": "f", "parameters": TOOL}}]
    async with one.chat({"messages": messages, "tools": tools, **body}) as answer:
        assert answer.status == 200, await answer.text()
        await answer.read()
    await one.settled()


FIRST = [{"role": "user", "content": "hi"}]
NEXT = [
    *FIRST,
    {"role": "assistant", "content": None, "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "call_1", "content": "42"},
]


def reasoning_of(made: Engine) -> Any:
    message = made.chats[-1].body["messages"][1]
    return message.get("reasoning") or message.get("reasoning_content")


@pytest.mark.parametrize("stream", [True, False])
async def test_chat_clients_that_drop_reasoning(stream: bool) -> None:
    async with engine(thinks_and_calls()) as made, gateway(config_of([pool_of(made.url)], **ON)) as one:
        await chat(one, FIRST, stream=stream)
        await chat(one, NEXT, stream=stream)
        assert reasoning_of(made) == "Hm. Yes."
        assert made.chats[-1].body["messages"][2]["content"] == "42"


async def test_messages_clients_that_hide_thinking() -> None:
    async with engine(thinks_and_calls()) as made, gateway(config_of([pool_of(made.url)], **ON)) as one:
        tools = [{"name": "f", "input_schema": TOOL}]
        asked: dict[str, Any] = {"model": "glm", "max_tokens": 9, "messages": FIRST, "tools": tools}
        for _ in range(2):
            async with one.client.post(f"{one.url}/v1/messages", json=asked) as answer:
                content = (await answer.json())["content"]
            await one.settled()
            result = {"type": "tool_result", "tool_use_id": "call_1", "content": "42"}
            kept = [block for block in content if block["type"] == "tool_use"]
            asked["messages"] = [*FIRST, {"role": "assistant", "content": kept}, {"role": "user", "content": [result]}]
        assert reasoning_of(made) == "Hm. Yes."


async def test_reasoning_that_was_brought_back_stays() -> None:
    async with engine(thinks_and_calls()) as made, gateway(config_of([pool_of(made.url)], **ON)) as one:
        await chat(one, FIRST)
        brought = json.loads(json.dumps(NEXT))
        brought[1]["reasoning_content"] = "Mine."
        await chat(one, brought)
        assert reasoning_of(made) == "Mine."


async def test_nothing_is_kept_unless_asked_for() -> None:
    async with engine(thinks_and_calls()) as made, gateway(config_of([pool_of(made.url)])) as one:
        await chat(one, FIRST)
        await chat(one, NEXT)
        assert reasoning_of(made) is None
        assert len(one.app.store) == 0  # type: ignore[arg-type]


async def test_exchanges_go_on_without_the_store() -> None:
    async with engine(thinks_and_calls()) as made:
        config = config_of([pool_of(made.url)], **ON, state={"url": "unix:///nonexistent/socket"})
        async with gateway(config) as one:
            await chat(one, FIRST)
            await chat(one, NEXT)
            assert reasoning_of(made) is None


@pytest.mark.parametrize("calls", [{"a": 1}, "text", [3]])
async def test_calls_where_they_have_no_business_are_left_alone(calls: object) -> None:
    async with engine(thinks_and_calls()) as made, gateway(config_of([pool_of(made.url)], **ON)) as one:
        await chat(one, [{"role": "user", "content": "hi", "tool_calls": calls}])
        assert made.chats[-1].body["messages"][0]["tool_calls"] == calls
