"""A client's connection: who serves it, how long it may be silent, and how it ends."""

import asyncio
import gc
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.connection import Connection
from gateway.handler import Handler
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import COMPLETION, DONE, ROLE, completes, engine, finish, hangs, response, says, streams, text
from tests.wire.test_lane import Line, line, request

GET = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"


@pytest.fixture
def handlers(monkeypatch: pytest.MonkeyPatch) -> list[Handler]:
    """aiohttp's handlers that were made."""
    made: list[Handler] = []
    connect = Handler.connection_made

    def spy(self: Handler, transport: asyncio.BaseTransport) -> None:
        made.append(self)
        connect(self, transport)

    monkeypatch.setattr(Handler, "connection_made", spy)
    return made


@asynccontextmanager
async def served(keepalive_s: float = 75.0, **listen: float) -> AsyncIterator[tuple[Running, Line]]:
    """A gateway in front of a good engine, and a connection to it."""
    slow = streams(ROLE, text("slow"), finish(), DONE, pause_s=0.1)
    async with engine(completes()) as made, engine(slow) as slower:
        pools = [pool_of(made.url), pool_of(slower.url, name="slow")]
        models = [{"name": name, "pools": [pool], "routing": "p2c"} for name, pool in (("glm", "a"), ("slow", "slow"))]
        async with gateway(config_of(pools, models=models, listen=listen)) as running:
            running.app.edge.keepalive_s = keepalive_s
            async with line(running) as client:
                yield running, client


async def closed(client: Line, within_s: float) -> float:
    """Seconds until the gateway closes the connection."""
    loop = asyncio.get_running_loop()
    begun = loop.time()
    async with asyncio.timeout(within_s):
        assert await client.reader.read() == b""
    return loop.time() - begun


async def test_everyday_requests_need_no_handler(handlers: list[Handler]) -> None:
    async with served() as (running, client):
        for _ in range(3):
            await client.ask()
        assert not handlers
        client.writer.write(GET)
        assert (await client.answer())[0].startswith(b"HTTP/1.1 200")
        await client.ask()
        client.writer.write(GET)
        await client.answer()
        assert len(handlers) == 1
        await running.settled()
    assert not running.app.edge.clients


@pytest.mark.parametrize("said", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nho"])
async def test_a_client_that_never_asks_is_given_up(said: bytes) -> None:
    async with served(request_timeout_s=0.2) as (_, client):
        client.writer.write(said)
        assert await closed(client, 2.0) > 0.1


@pytest.mark.parametrize("through_handler", [False, True])
async def test_a_kept_connection_may_rest_for_a_while(*, through_handler: bool) -> None:
    async with served(keepalive_s=0.4, request_timeout_s=0.2) as (running, client):
        running.app.edge._kwargs["keepalive_timeout"] = 0.4
        for _ in range(3):
            if through_handler:
                client.writer.write(GET)
                await client.answer()
            await client.ask()
            await asyncio.sleep(0.3)
        assert await closed(client, 2.0) < 1.0


async def test_a_long_exchange_is_not_silence() -> None:
    async with served(keepalive_s=0.1, request_timeout_s=0.1) as (running, client):
        client.writer.write(request(model="slow", stream=True))
        assert b"slow" in (await client.answer())[1]
        await running.settled()


@pytest.mark.parametrize("through_handler", [False, True])
async def test_a_shutdown_lets_exchanges_end(*, through_handler: bool) -> None:
    async with served() as (running, client), line(running) as idle:
        if through_handler:
            for one in (client, idle):
                one.writer.write(GET)
                await one.answer()
        client.writer.write(request(model="slow", stream=True))
        await client.reader.readuntil(b"\r\n\r\n")
        edge = running.app.edge
        edge.pre_shutdown()
        await asyncio.gather(closed(idle, 1.0), edge.shutdown(2.0))
        assert DONE in await client.reader.read()
        await running.settled()
        assert not edge.clients


async def test_after_a_shutdown_has_begun_nothing_further_is_served() -> None:
    async with served() as (running, client):
        await client.ask()
        client.writer.write(request(model="slow", stream=True))
        await client.reader.readuntil(b"\r\n\r\n")
        running.app.edge.pre_shutdown()
        client.writer.write(request())
        assert (await client.reader.read()).count(b"HTTP/1.1") == 0
        await running.settled()


@pytest.mark.parametrize("said", [GET, request()[:-5], GET + request()[:-5]])
async def test_a_lost_connection_leaves_nothing_behind(said: bytes) -> None:
    async with served() as (running, client):
        gc.collect()
        gc.disable()
        try:
            client.writer.write(said)
            await asyncio.sleep(0.05)
            client.writer.transport.abort()
            async with asyncio.timeout(2.0):
                while running.app.edge.clients:
                    await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            assert not [one for one in gc.get_objects() if type(one) in (Connection, Handler)]
        finally:
            gc.enable()


@asynccontextmanager
async def slow_reader(running: Running) -> AsyncIterator[tuple[socket.socket, Connection]]:
    """A client that takes only what it asks for, over small buffers."""
    host, port = running.url.removeprefix("http://").split(":")
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.setblocking(False)
        await asyncio.get_running_loop().sock_connect(client, (host, int(port)))
        async with asyncio.timeout(2.0):
            while not running.app.edge.clients:
                await asyncio.sleep(0.01)
        (connection,) = running.app.edge.clients
        assert connection.transport is not None
        connection.transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        yield client, connection


@pytest.mark.parametrize("asked", [request("x"), request("x", model="none"), request("x", n="many")])
@pytest.mark.parametrize("together", [1, 20])
async def test_who_does_not_take_its_answers_is_not_served_on(asked: bytes, together: int) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with slow_reader(running) as (client, connection):
            loop, transport = asyncio.get_running_loop(), connection.transport
            assert transport is not None

            async def ask() -> None:
                while True:
                    await loop.sock_sendall(client, asked * together)
                    await asyncio.sleep(0.001)

            asking = asyncio.create_task(ask())
            async with asyncio.timeout(10.0):
                waiting, before = transport.get_write_buffer_size(), -1
                while not before == waiting > 0:
                    await asyncio.sleep(0.3)
                    waiting, before = transport.get_write_buffer_size(), waiting
            assert waiting < 256 * 1024
            answers = 0
            async with asyncio.timeout(10.0):
                while answers < 1000:  # it goes on, when they are taken
                    answers += (await loop.sock_recv(client, 1 << 20)).count(b"HTTP/1.1 ")
            asking.cancel()


async def test_a_handler_made_late_knows_that_the_client_is_slow() -> None:
    message = {"role": "assistant", "content": "y" * 1_000_000}
    big = {**COMPLETION, "choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}
    async with engine(says(response(200, big))) as made:
        async with gateway(config_of([pool_of(made.url)])) as running, slow_reader(running) as (client, connection):
            loop = asyncio.get_running_loop()
            broken: list[object] = []
            loop.set_exception_handler(lambda _, context: broken.append(context))
            await loop.sock_sendall(client, request())
            await running.settled()
            await loop.sock_sendall(client, GET)
            await asyncio.sleep(0.1)
            answers = b""
            async with asyncio.timeout(5.0):
                while answers.count(b"HTTP/1.1 200") < 2:
                    answers += await loop.sock_recv(client, 1 << 20)
            assert connection.transport is not None
            assert not broken


async def test_a_client_that_said_something_early_is_still_seen_to_leave() -> None:
    async with engine(hangs()) as made, gateway(config_of([pool_of(made.url)])) as running, line(running) as client:
        client.writer.write(request() + b"\r\n")
        async with asyncio.timeout(2.0):
            while not made.chats:
                await asyncio.sleep(0.005)
        client.writer.write(b"\r\n")
        await asyncio.sleep(0.02)
        client.writer.transport.abort()
        async with asyncio.timeout(0.5):
            await made.left.wait()
        await running.settled()


async def test_what_follows_connect_is_no_request() -> None:
    async with served() as (_, client):
        hidden = b"GET /livez HTTP/1.1\r\nhost: a\r\n\r\n"
        client.writer.write(b"CONNECT /x HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n%b" % (len(hidden), hidden))
        async with asyncio.timeout(2.0):
            assert (await client.reader.read()).count(b"HTTP/1.1 ") == 1
