"""Compaction: a conversation is summarised, and the summary goes on as a sealed item."""

from typing import Any

from openai.types.responses.response_compaction_item import ResponseCompactionItem
from openai.types.responses.response_usage import ResponseUsage

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import COMPLETION, completes, engine, response, says


async def post(one: Running, path: str, status: int = 200, **body: Any) -> Any:
    async with one.client.post(f"{one.url}/v1/{path}", json={"model": "glm", **body}) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def test_a_conversation_becomes_its_messages_and_a_summary() -> None:
    said = [
        {"role": "user", "content": "one"},
        {"role": "assistant", "content": "Well."},
        {"role": "user", "content": [{"type": "input_text", "text": "two"}]},
    ]
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        compacted = await post(one, "responses/compact", input=said, instructions="Be brief.")
        ResponseUsage.model_validate(compacted["usage"])
        assert compacted["object"] == "response.compaction"
        *messages, summary = compacted["output"]
        assert [message["content"][0]["text"] for message in messages] == ["one", "two"]
        ResponseCompactionItem.model_validate(summary)
        assert "Hello" not in summary["encrypted_content"]
        asked = made.chats[-1].body["messages"]
        assert [message["role"] for message in asked] == ["system", "user", "assistant", "user", "user"]

        await post(one, "responses", input=[*compacted["output"], {"role": "user", "content": "three"}])
        asked = made.chats[-1].body["messages"]
        assert "Hello" in str(asked[-2]["content"])
        assert asked[-1]["content"] == "three"
        await one.settled()


async def test_a_stored_conversation_is_compacted_by_its_last_id() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        first = await post(one, "responses", input="one")
        stored = len(one.app.store)  # type: ignore[arg-type]
        compacted = await post(one, "responses/compact", previous_response_id=first["id"])
        assert [item["type"] for item in compacted["output"]] == ["message", "compaction"]
        assert len(one.app.store) == stored  # type: ignore[arg-type]
        await post(one, "responses/compact", 400, previous_response_id="resp_x")


async def test_an_answer_without_a_summary_is_an_error() -> None:
    empty = {**COMPLETION, "choices": [{"index": 0, "message": {"content": ""}, "finish_reason": "stop"}]}
    async with engine(says(response(200, empty))) as made:
        async with gateway(config_of([pool_of(made.url)], retry={"attempts": 1})) as one:
            error = await post(one, "responses/compact", 500, input="hi")
            assert error["error"]["type"] == "server_error"
