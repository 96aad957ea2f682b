"""A client's connection: who serves it, how long it may be silent, and how it ends."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from gateway.handler import Handler
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import DONE, ROLE, completes, engine, finish, streams, text
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
