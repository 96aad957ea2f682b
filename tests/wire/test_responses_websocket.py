"""Responses over a WebSocket."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import ROLE, STREAM_HEAD, Engine, chunk, completes, engine, hangs, streams, text

UPGRADE = {"connection": "upgrade", "upgrade": "websocket", "sec-websocket-version": "13",
           "sec-websocket-key": "AAAAAAAAAAAAAAAAAAAAAA=="}  # fmt: skip


@asynccontextmanager
async def connected(made: Engine, **more: Any) -> AsyncIterator[tuple[Running, aiohttp.ClientWebSocketResponse]]:
    async with gateway(config_of([pool_of(made.url)], **more)) as one:
        async with one.client.ws_connect(f"{one.url}/v1/responses") as socket:
            yield one, socket


async def ask(socket: aiohttp.ClientWebSocketResponse, **body: Any) -> list[Any]:
    """Ask for one response; returns its events, or the one error."""
    await socket.send_json({"type": "response.create", "model": "glm", "input": "hi", **body})
    events: list[Any] = []
    while not events or events[-1]["type"] not in {
        "response.completed",
        "response.incomplete",
        "response.failed",
        "error",
    }:
        events.append(await socket.receive_json(timeout=10))
    return events


async def test_one_frame_asks_and_events_come_back() -> None:
    async with engine(completes()) as made, connected(made) as (one, socket):
        events = await ask(socket)
        assert [event["sequence_number"] for event in events] == list(range(len(events)))
        assert events[0]["type"] == "response.created"
        done = events[-1]["response"]
        assert done["output"][0]["content"][0]["text"] == "Hello"
        async with one.client.get(f"{one.url}/v1/responses/{done['id']}") as answer:
            assert await answer.json() == done
        await one.settled()


@pytest.mark.parametrize("stored", [True, False])
async def test_the_latest_can_be_continued_without_a_store(stored: bool) -> None:
    async with engine(completes()) as made, connected(made, state={"store_responses": stored}) as (_, socket):
        first = (await ask(socket, input="one", store=False))[-1]["response"]
        assert first["store"] is False
        second = (await ask(socket, input="two", store=False, previous_response_id=first["id"]))[-1]["response"]
        assert second["previous_response_id"] == first["id"]
        await ask(socket, input="three", store=False, previous_response_id=second["id"])
        assert [message["content"] for message in made.chats[-1].body["messages"]] == [
            "one",
            "Hello",
            "two",
            "Hello",
            "three",
        ]
        error = (await ask(socket, previous_response_id=first["id"]))[-1]
        assert error["error"]["code"] == "previous_response_not_found"


async def test_another_connection_knows_only_what_is_stored() -> None:
    async with engine(completes()) as made, connected(made) as (one, socket):
        kept = (await ask(socket))[-1]["response"]["id"]
        latest = (await ask(socket, store=False))[-1]["response"]["id"]
        async with one.client.ws_connect(f"{one.url}/v1/responses") as other:
            assert (await ask(other, previous_response_id=kept))[-1]["type"] == "response.completed"
            error = (await ask(other, previous_response_id=latest))[-1]
        assert error["type"] == "error"
        assert error["status"] == 400
        assert error["error"]["code"] == "previous_response_not_found"
        assert error["error"]["param"] == "previous_response_id"


async def test_a_failed_continuation_forgets_what_it_continued() -> None:
    broken = streams(ROLE, text("Hel"), end=b"", hang_up=True)
    scripts = [completes(), broken, completes()]

    async def script(*args: Any) -> None:
        await scripts.pop(0)(*args)

    async with engine(script) as made, connected(made, retry={"attempts": 1}) as (_, socket):
        first = (await ask(socket, store=False))[-1]["response"]
        assert (await ask(socket, store=False, previous_response_id=first["id"]))[-1]["type"] == "response.failed"
        error = (await ask(socket, store=False, previous_response_id=first["id"]))[-1]
        assert error["error"]["code"] == "previous_response_not_found"


async def test_a_turn_may_be_taken_in_without_an_answer() -> None:
    async with engine(completes()) as made, connected(made) as (_, socket):
        warm = (await ask(socket, input="one", store=False, generate=False))[-1]["response"]
        assert warm["output"] == []
        assert not made.chats
        await ask(socket, input="two", store=False, previous_response_id=warm["id"])
        assert [message["content"] for message in made.chats[-1].body["messages"]] == ["one", "two"]


async def test_bad_frames_get_errors_and_the_connection_stays() -> None:
    async with engine(completes()) as made, connected(made) as (one, socket):
        for frame in ("no json", "[]", '{"type": "other"}', '{"type": "response.create", "background": true}'):
            await socket.send_str(frame)
            error = await socket.receive_json(timeout=10)
            assert (error["type"], error["status"]) == ("error", 400)
        await socket.send_bytes(b"{}")
        assert (await socket.receive_json(timeout=10))["status"] == 400
        error = (await ask(socket, model="other"))[-1]
        assert (error["status"], error["error"]["code"]) == (404, "model_not_found")
        assert (await ask(socket))[-1]["type"] == "response.completed"
        await one.settled()


async def test_who_cannot_upgrade_is_told_426_in_json() -> None:
    async with engine(completes()) as made:
        for more, headers in (({}, {}), ({"listen": {"websockets": False}}, UPGRADE)):
            async with gateway(config_of([pool_of(made.url)], **more)) as one:
                async with one.client.get(f"{one.url}/v1/responses", headers=headers) as answer:
                    assert answer.status == 426
                    assert (await answer.json())["error"]["code"] == "upgrade_required"


async def test_keys_and_origins_are_checked_before_the_upgrade() -> None:
    async with engine(completes()) as made:
        async with gateway(config_of([pool_of(made.url)], auth={"mode": "keys"})) as one:
            async with one.client.get(f"{one.url}/v1/responses", headers=UPGRADE) as answer:
                assert answer.status == 401
        async with gateway(config_of([pool_of(made.url)])) as one:
            foreign = {**UPGRADE, "origin": "http://elsewhere.example"}
            async with one.client.get(f"{one.url}/v1/responses", headers=foreign) as answer:
                assert answer.status == 403


async def test_the_engine_is_left_when_the_client_leaves() -> None:
    async with engine(hangs(STREAM_HEAD, chunk(ROLE), chunk(text("Hel")))) as made, connected(made) as (one, socket):
        await socket.send_json({"type": "response.create", "model": "glm", "input": "hi"})
        await socket.receive_json(timeout=10)
        await one.client.close()
        async with asyncio.timeout(5):
            await made.left.wait()
        await one.settled()


async def test_the_engine_is_left_when_the_client_says_goodbye_and_keeps_its_connection() -> None:
    async with engine(hangs(STREAM_HEAD, chunk(ROLE), chunk(text("Hel")))) as made, connected(made) as (one, socket):
        await socket.send_json({"type": "response.create", "model": "glm", "input": "hi"})
        await socket.receive_json(timeout=10)
        closing = asyncio.create_task(socket.close())
        async with asyncio.timeout(5):
            await made.left.wait()
            await closing
        assert socket.close_code == 1000
        await one.settled()


async def test_requests_that_do_not_wait_are_answered_in_order() -> None:
    async with engine(completes()) as made, connected(made) as (one, socket):
        for number in range(9):
            await socket.send_json({"type": "response.create", "model": "glm", "input": str(number)})
        done = 0
        while done < 9:
            done += (await socket.receive_json(timeout=10))["type"] == "response.completed"
        assert [chat.body["messages"][0]["content"] for chat in made.chats] == [str(number) for number in range(9)]
        await one.settled()
