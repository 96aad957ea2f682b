"""Stored responses through the official SDK."""

import asyncio

import openai
import pytest

from tests.support.app import config_of, gateway, pool_of
from tests.support.engine import completes, engine


async def test_the_life_of_a_background_response() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        async with openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0) as client:
            responses = client.responses
            queued = await responses.create(model="glm", input="hi", background=True)
            assert queued.status == "queued"
            async with asyncio.timeout(10):
                while (done := await responses.retrieve(queued.id)).status != "completed":
                    await asyncio.sleep(0.05)
            assert done.output_text == "Hello"
            assert [item.type async for item in responses.input_items.list(done.id)] == ["message"]
            assert (await responses.cancel(done.id)).status == "completed"
            await responses.delete(done.id)
            with pytest.raises(openai.NotFoundError, match=done.id):
                await responses.retrieve(done.id)
        await one.settled()


async def test_a_background_stream_is_taken_up_again() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        async with openai.AsyncOpenAI(base_url=f"{one.url}/v1", api_key="none", max_retries=0) as client:
            stream = await client.responses.create(model="glm", input="hi", background=True, stream=True)
            events = [event async for event in stream]
            assert events[-1].type == "response.completed"
            again = await client.responses.retrieve(events[-1].response.id, stream=True, starting_after=2)
            assert [event.sequence_number async for event in again] == list(range(3, len(events)))
            compacted = await client.responses.compact(model="glm", previous_response_id=events[-1].response.id)
            assert [item.type for item in compacted.output] == ["message", "compaction"]
