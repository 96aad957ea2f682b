"""Everyday requests: served without aiohttp, and as well as by it."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from gateway.auth import generate_key
from gateway.caller import Caller
from gateway.connection import Connection
from gateway.lane import Lane
from gateway.lane import Running as LaneRunning
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
    says,
    streams,
    text,
)

Served = list[bytes]


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Served:
    """Bodies of the requests that a lane took."""
    bodies: Served = []
    begin = Lane.begin

    def spy(self: Lane, caller: Caller, body: bytes, client: Connection) -> LaneRunning | None:
        running = begin(self, caller, body, client)
        if running is not None:
            bodies.append(body)
        return running

    monkeypatch.setattr(Lane, "begin", spy)
    return bodies


@dataclass
class Line:
    """One connection to the gateway."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def send(self, said: str = "hi", *, key: str = "", **fields: Any) -> None:
        self.writer.write(request(said, key=key, **fields))

    async def answer(self) -> tuple[bytes, bytes]:
        """Head and body of the next answer."""
        async with asyncio.timeout(3.0):
            head = await self.reader.readuntil(b"\r\n\r\n")
            if b"chunked" in head:
                return head, await self.reader.readuntil(b"0\r\n\r\n")
            length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r")[0])
            return head, await self.reader.readexactly(length)

    async def ask(self, said: str = "hi", *, key: str = "", **fields: Any) -> tuple[bytes, bytes]:
        self.send(said, key=key, **fields)
        return await self.answer()


def request(said: str = "hi", *, key: str = "", **fields: Any) -> bytes:
    body = json.dumps({"model": "glm", "messages": [{"role": "user", "content": said}], **fields}).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: a\r\nauthorization: Bearer {key}\r\n"
    sized = f"Content-Length: {len(body)}\r\ncontent-type: application/json\r\n\r\n"
    return (head + sized).encode() + body


@asynccontextmanager
async def line(running: Running) -> AsyncIterator[Line]:
    """A connection of its own."""
    host, port = running.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


def once(first: Answer) -> Answer:
    """Answer well, then once by `first`, then well again."""
    good, seen = completes(), [0]

    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        seen[0] += 1
        await (first if seen[0] == 2 else good)(made, reader, writer, asked)

    return answer


async def test_bodies_of_any_length(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        ids = set()
        for said in ("one", "another", "a much longer one " * 50, ""):
            head, body = await client.ask(said)
            assert head.startswith(b"HTTP/1.1 200 OK\r\n")
            assert b"x-gateway-pool: a\r\n" in head
            assert json.loads(body)["choices"][0]["message"]["content"] == "Hello"
            ids.add(head.partition(b"x-request-id: ")[2][:28])
        assert [asked.body["messages"][0]["content"] for asked in made.chats][:2] == ["one", "another"]
        assert len(served) == 4
        assert len(ids) == len(made.chats) == 4
        await running.settled()
        first, *others = running.app.telemetry.recent
        assert all(other.status == 200 and other.client == first.client and other.completion_tokens for other in others)


async def test_streams(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        for _ in range(3):
            _, body = await client.ask(stream=True)
            assert b"Hello" in body
            assert DONE in body
        assert len(served) == 3
        await running.settled()


async def test_what_needs_care_goes_the_ordinary_way(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        await client.ask()
        for fields, status in (({"stop": ["x"]}, b"200"), ({"n": "many"}, b"400"), ({"model": "other"}, b"404")):
            head, _ = await client.ask(**fields)
            assert head[9:12] == status
        await client.ask()
        assert [json.loads(body)["model"] for body in served] == ["glm", "other", "glm"]
        await running.settled()


@pytest.mark.parametrize(
    "failing",
    [says(hang_up=True), says(b"HTTP/1.1 503 X\r\ncontent-length: 2\r\n\r\n{}"), streams(ROLE, hang_up=True, end=b"")],
)
@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_attempt_is_followed_by_another(served: Served, failing: Answer, *, stream: bool) -> None:
    async with engine(once(failing)) as one, engine(completes()) as two:
        async with gateway(config_of([pool_of(one.url, two.url)])) as running, line(running) as client:
            for _ in range(8):
                head, body = await client.ask(stream=stream)
                assert head.startswith(b"HTTP/1.1 200")
                assert b"Hello" in body
            assert served
            await running.settled()


async def test_failure_everywhere_is_an_error_and_the_connection_lives(served: Served) -> None:
    broken = once(says(hang_up=True))
    async with engine(broken) as made:
        config = config_of([pool_of(made.url)], retry={"attempts": 1})
        async with gateway(config) as running, line(running) as client:
            assert (await client.ask())[0].startswith(b"HTTP/1.1 200")
            assert (await client.ask())[0].startswith((b"HTTP/1.1 200", b"HTTP/1.1 502"))  # a kept connection is stale
            assert (await client.ask())[0].startswith(b"HTTP/1.1 200")
            await running.settled()
        assert len(served) == 3


@pytest.mark.parametrize("stream", [False, True])
async def test_a_client_that_leaves_stops_the_engine(served: Served, *, stream: bool) -> None:
    async with engine(once(hangs())) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with line(running) as client:
            await client.ask(stream=stream)
            client.send(stream=stream)
            async with asyncio.timeout(1.0):
                while len(made.chats) < 2:
                    await asyncio.sleep(0.005)
        async with asyncio.timeout(0.5):
            await made.left.wait()
        await running.settled()
        assert served
        last = running.app.telemetry.recent[-1]
        assert (last.status, last.error) == (499, "client_gone")


@pytest.mark.parametrize("before", [0, 1])
async def test_a_client_that_leaves_with_its_whole_answer_has_had_it(served: Served, before: int) -> None:
    unended = hangs(STREAM_HEAD, *(chunk(event) for event in (ROLE, text("He"), finish(), DONE)))
    async with engine(once(unended) if before else unended) as made:
        async with gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
            for _ in range(before):
                await client.ask(stream=True)
            client.send(stream=True)
            await client.reader.readuntil(b"[DONE]")
            client.writer.close()
            await running.settled()
            assert len(served) == before + 1
            last = running.app.telemetry.recent[-1]
            assert (last.status, last.error, last.finish_reason) == (200, "", "end")


async def test_requests_that_come_early_are_answered_in_turn(served: Served) -> None:
    slow = streams(ROLE, text("slow"), finish(), DONE, pause_s=0.05)
    async with engine(once(slow)) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        await client.ask()
        client.send(stream=True)
        await asyncio.sleep(0.03)
        client.send("second")
        client.send("third")
        await asyncio.sleep(0.03)
        client.writer.write(request("fourth") + request("fifth"))
        assert b"slow" in (await client.answer())[1]
        for _ in range(4):
            assert b"Hello" in (await client.answer())[1]
        said = [asked.body["messages"][0]["content"] for asked in made.chats]
        assert said == ["hi", "hi", "second", "third", "fourth", "fifth"]
        assert served
        await running.settled()


async def test_a_head_in_pieces_is_for_aiohttp_and_all_after_it(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        client.writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nx: ")
        await asyncio.sleep(0.05)
        await client.ask()  # its first line is the value of x
        await client.ask()
        assert not served
        whole = request("whole")
        client.writer.write(whole[:40])
        await asyncio.sleep(0.05)
        client.writer.write(whole[40:])
        await client.answer()
        assert not served
        assert len(made.chats) == 3
        await running.settled()


async def test_keys_are_asked_for_again_when_they_change(served: Served) -> None:
    key = generate_key()
    tenants = [{"name": "t", "keys": [{"id": "k", "sha256": key.sha256}]}]
    async with engine(completes()) as made:
        config = config_of([pool_of(made.url)], auth={"mode": "keys"}, tenants=tenants)
        async with gateway(config) as running, line(running) as client:
            assert (await client.ask(key=key.text))[0].startswith(b"HTTP/1.1 200")
            assert (await client.ask(key=key.text))[0].startswith(b"HTTP/1.1 200")
            assert (await client.ask(key=key.text[:-1] + "!"))[0].startswith(b"HTTP/1.1 401")
            assert (await client.ask(key=key.text))[0].startswith(b"HTTP/1.1 200")
            await running.app.apply(config_of([pool_of(made.url)], auth={"mode": "keys"}), ())
            assert (await client.ask(key=key.text))[0].startswith(b"HTTP/1.1 401")
            assert len(served) == 5
            await running.settled()


async def test_draining_ends_the_connection_with_the_answer(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        await client.ask()
        running.app.drain()
        head, _ = await client.ask()
        assert b"connection: close\r\n" in head
        assert await client.reader.read() == b""
        assert len(served) == 2
        await running.settled()


async def test_a_body_in_pieces(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        for pieces in (1, 3, 2, 4):
            whole = request("x" * 1000 * pieces)
            for at in range(0, len(whole), len(whole) // pieces + 1):
                client.writer.write(whole[at : at + len(whole) // pieces + 1])
                await asyncio.sleep(0.02)
            assert b"Hello" in (await client.answer())[1]
        assert len(served) == 4
        await running.settled()


async def test_a_first_body_in_pieces(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        whole = request("x" * 1000)
        for piece in (whole[:500], whole[500:700], whole[700:]):
            client.writer.write(piece)
            await asyncio.sleep(0.02)
        await client.answer()
        await client.ask()
        assert len(served) == 2


async def test_more_than_the_body_goes_the_ordinary_way(served: Served) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        await client.ask()
        first, second = request("first"), request("second")
        client.writer.write(first[:-5])
        await asyncio.sleep(0.02)
        client.writer.write(first[-5:] + second)
        for _ in range(2):
            assert b"Hello" in (await client.answer())[1]
        assert len(served) == 1
        assert [asked.body["messages"][0]["content"] for asked in made.chats] == ["hi", "first", "second"]
        await running.settled()


async def test_a_body_that_is_long_in_coming(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.connection._BODY_PATIENCE_S", 0.02)
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        await client.ask()
        whole = request("slow")
        client.writer.write(whole[:-5])
        await asyncio.sleep(0.1)
        client.writer.write(whole[-5:])
        assert b"Hello" in (await client.answer())[1]
        assert len(served) == 1
        await client.ask()
        await running.settled()
