"""Responses that run without their client: polled, replayed, cancelled, also from another gateway."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from gateway.state.base import StateUnavailable
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import (
    DONE,
    ROLE,
    STREAM_HEAD,
    Answer,
    Asked,
    Engine,
    chunk,
    completes,
    engine,
    finish,
    hangs,
    response,
    says,
    streams,
    text,
)
from tests.support.valkey import valkey_server

FINAL = ("completed", "incomplete", "failed", "cancelled")


def gated(gate: asyncio.Event) -> Answer:
    """The first word at once, the rest when the gate opens."""

    async def answer(_: Engine, __: asyncio.StreamReader, writer: asyncio.StreamWriter, ___: Asked) -> None:
        writer.write(STREAM_HEAD + chunk(ROLE) + chunk(text("Hel")))
        await gate.wait()
        writer.write(chunk(text("lo")) + chunk(finish()) + chunk(DONE) + b"0\r\n\r\n")

    return answer


async def create(one: Running, status: int = 200, **body: Any) -> Any:
    asked = {"model": "glm", "input": "hi", "background": True, **body}
    async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def call(one: Running, method: str, path: str, status: int = 200) -> Any:
    async with one.client.request(method, f"{one.url}/v1/responses/{path}") as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def until(one: Running, made: Any, test: Callable[[Any], bool]) -> Any:
    async with asyncio.timeout(20):
        while not test(made):
            await asyncio.sleep(0.02)
            made = await call(one, "GET", made["id"])
    return made


async def finished(one: Running, made: Any) -> Any:
    return await until(one, made, lambda now: now["status"] in FINAL)


def events_in(body: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in body.split(b"\n") if line.startswith(b"data: ")]


async def test_it_is_queued_at_once_and_can_be_polled() -> None:
    gate = asyncio.Event()
    async with engine(gated(gate)) as made, gateway(config_of([pool_of(made.url)])) as one:
        first = await create(one)
        assert (first["status"], first["output"], first["background"]) == ("queued", [], True)
        await until(one, first, lambda now: now["status"] == "in_progress")
        assert (await call(one, "GET", f"{first['id']}/input_items"))["data"]
        gate.set()
        done = await finished(one, first)
        assert done["status"] == "completed"
        assert done["output"][0]["content"][0]["text"] == "Hello"
        assert (done["id"], done["created_at"]) == (first["id"], first["created_at"])
        more = {"model": "glm", "input": "more", "stream": True, "previous_response_id": first["id"]}
        async with one.client.post(f"{one.url}/v1/responses", json=more) as answer:
            assert events_in(await answer.read())[-1]["type"] == "response.completed"
        assert [message["content"] for message in made.chats[-1].body["messages"]] == ["hi", "Hello", "more"]
        await one.settled()


async def test_it_survives_its_client() -> None:
    gate = asyncio.Event()
    async with engine(gated(gate)) as made, gateway(config_of([pool_of(made.url)])) as one:
        asked = {"model": "glm", "input": "hi", "background": True, "stream": True}
        async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
            line = b""
            while not line.startswith(b"data: "):
                line = await answer.content.readline()
            answer.close()
        created = json.loads(line[6:])
        assert created["type"] == "response.created"
        gate.set()
        done = await finished(one, created["response"])
        assert done["status"] == "completed"
        assert not made.left.is_set()
        await one.settled()


async def test_its_events_are_replayed_from_any_number() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        asked = {"model": "glm", "input": "hi", "background": True, "stream": True}
        async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
            live = events_in(await answer.read())
        assert [event["sequence_number"] for event in live] == list(range(len(live)))
        assert live[-1]["type"] == "response.completed"
        path = f"{one.url}/v1/responses/{live[0]['response']['id']}?stream=true"
        async with one.client.get(path) as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert events_in(await answer.read()) == live
        async with one.client.get(f"{path}&starting_after=3") as answer:
            assert events_in(await answer.read()) == live[4:]
        for bad in ("x", "--1", "9" * 5000):
            async with one.client.get(f"{path}&starting_after={bad}") as answer:
                assert answer.status == 400
        async with one.client.head(path) as answer:
            assert answer.headers["content-type"].startswith("application/json")
        await one.settled()


async def test_many_events_at_once_are_stored_in_as_many_batches_as_it_takes() -> None:
    words = [text("w ") for _ in range(200)]
    async with engine(streams(ROLE, *words, finish(), DONE)) as made:
        config = config_of([pool_of(made.url)], state={"response_limit_bytes": 4096})
        async with gateway(config) as one:
            asked = {"model": "glm", "input": "hi", "background": True, "stream": True}
            async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
                events = events_in(await answer.read())
            assert [event["sequence_number"] for event in events] == list(range(len(events)))
            assert sum(event["type"] == "response.output_text.delta" for event in events) == 200
            assert events[-1]["type"] == "response.completed"
            assert (await finished(one, events[0]["response"]))["status"] == "completed"
            await one.settled()


async def test_a_stream_that_cannot_be_stored_whole_fails_and_says_so() -> None:
    words = [text("word " * 20) for _ in range(100)]
    async with engine(streams(ROLE, *words, finish(), DONE)) as made:
        config = config_of([pool_of(made.url)], state={"response_limit_bytes": 4096})
        async with gateway(config) as one:
            asked = {"model": "glm", "input": "hi", "background": True, "stream": True}
            async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
                *before, last = events_in(await answer.read())
            assert [event["sequence_number"] for event in before] == list(range(len(before)))
            assert {event["type"] for event in before[-100:]} == {"response.output_text.delta"}
            assert last["type"] == "response.failed"
            assert last["sequence_number"] > before[-1]["sequence_number"]
            done = await finished(one, before[0]["response"])
            assert done["status"] == "failed"
            assert done["error"] == last["response"]["error"]
            assert "too large" in done["error"]["message"]
            await one.settled()


async def test_cancelling_stops_the_engine() -> None:
    async with engine(hangs(STREAM_HEAD, chunk(ROLE), chunk(text("Hel")))) as made:
        async with gateway(config_of([pool_of(made.url)])) as one:
            first = await create(one)
            await until(one, first, lambda now: now["status"] == "in_progress")
            cancelled = await call(one, "POST", f"{first['id']}/cancel")
            assert (cancelled["id"], cancelled["status"]) == (first["id"], "cancelled")
            async with asyncio.timeout(5):
                await made.left.wait()
            assert (await call(one, "POST", f"{first['id']}/cancel"))["status"] == "cancelled"
            await one.settled()


async def test_deleting_stops_it_too() -> None:
    async with engine(hangs(STREAM_HEAD, chunk(ROLE), chunk(text("Hel")))) as made:
        async with gateway(config_of([pool_of(made.url)])) as one:
            first = await create(one, stream=False)
            await call(one, "DELETE", first["id"])
            await call(one, "GET", first["id"], 404)
            await one.settled()


async def test_a_refusal_of_the_engine_fails_it_with_the_reason() -> None:
    refusal = says(response(400, {"error": {"message": "temperature is too high", "code": 400}}))
    async with engine(refusal) as made, gateway(config_of([pool_of(made.url)])) as one:
        done = await finished(one, await create(one))
        assert done["status"] == "failed"
        assert "temperature" in done["error"]["message"]
        asked = {"model": "glm", "input": "hi", "background": True, "stream": True}
        async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
            events = events_in(await answer.read())
        assert events[-1]["type"] == "response.failed"
        await one.settled()


async def test_only_so_many_run_and_only_with_a_store() -> None:
    config = {"state": {"background_responses": 1}}
    async with engine(hangs(STREAM_HEAD)) as made, gateway(config_of([pool_of(made.url)], **config)) as one:
        first = await create(one)
        await create(one, 503)
        assert (await create(one, 400, store=False))["error"]["param"] == "background"
        await call(one, "DELETE", first["id"])


async def test_only_so_many_run_when_they_come_at_once() -> None:
    with valkey_server() as url:
        async with engine(hangs(STREAM_HEAD)) as made:
            config = config_of([pool_of(made.url)], state={"background_responses": 2, "url": url})
            async with gateway(config) as one:
                asked = {"model": "glm", "input": "hi", "background": True}
                posts = [one.client.post(f"{one.url}/v1/responses", json=asked) for _ in range(6)]
                answers = await asyncio.gather(*posts)
                assert sorted(answer.status for answer in answers) == [200, 200, 503, 503, 503, 503]


async def test_another_gateway_polls_replays_and_cancels() -> None:
    with valkey_server() as url:
        state = {"state": {"url": url}}
        async with engine(hangs(STREAM_HEAD, chunk(ROLE), chunk(text("Hel")))) as made:
            config = config_of([pool_of(made.url)], **state)
            async with gateway(config) as one, gateway(config) as other:
                first = await create(one, stream=False)
                await until(other, first, lambda now: now["status"] == "in_progress")
                assert (await call(other, "POST", f"{first['id']}/cancel"))["status"] == "cancelled"
                async with asyncio.timeout(5):
                    await made.left.wait()
                await one.settled()


async def test_what_a_stopped_gateway_ran_has_failed() -> None:
    with valkey_server() as url:
        async with engine(hangs(STREAM_HEAD, chunk(ROLE))) as made:
            config = config_of([pool_of(made.url)], state={"url": url})
            async with gateway(config) as one:
                first = await create(one)
            async with gateway(config) as other:
                assert (await call(other, "GET", first["id"]))["status"] == "failed"


async def test_what_ends_while_the_store_is_away_is_stored_when_it_is_back() -> None:
    gate = asyncio.Event()
    async with engine(gated(gate)) as made, gateway(config_of([pool_of(made.url)])) as one:
        first = await create(one, stream=False)
        await until(one, first, lambda now: now["status"] == "in_progress")
        put, away = one.app.store.put, True

        async def failing(*args: Any, **options: Any) -> int:
            if away:
                raise StateUnavailable
            return await put(*args, **options)

        one.app.store.put = failing  # type: ignore[method-assign]
        gate.set()
        await one.settled()
        await asyncio.sleep(0.3)
        assert (await call(one, "GET", first["id"]))["status"] == "in_progress"
        away = False
        assert (await finished(one, first))["status"] == "completed"
