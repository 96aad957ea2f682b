"""The engine client against a peer that sends exact bytes."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from backends.client import EnginePool
from backends.contracts import EngineFailure, Fault
from backends.http1 import ResponseHead
from tests.support.raw_server import Script, raw_server, read_request

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"
PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"


class Inbox:
    """Keeps an answer."""

    def __init__(self) -> None:
        self.head: ResponseHead | None = None
        self.pieces: list[bytes] = []
        self.result: asyncio.Future[EngineFailure | None] = asyncio.get_running_loop().create_future()
        self.after_head: Callable[[], None] = lambda: None

    def on_head(self, head: ResponseHead) -> None:
        self.head = head
        self.after_head()

    def on_chunk(self, data: bytes, start: int) -> None:
        assert data.endswith(b"\r\n")
        self.on_data(data[start:-2])

    def on_data(self, data: bytes) -> None:
        assert data
        self.pieces.append(data)

    def on_end(self) -> None:
        self.result.set_result(None)

    def on_failure(self, failure: EngineFailure) -> None:
        self.result.set_result(failure)

    @property
    def body(self) -> bytes:
        return b"".join(self.pieces)


def pool_of(url: str, *, idle_limit_s: float = 5.0) -> EnginePool:
    return EnginePool(url, connect_s=1.0, idle_limit_s=idle_limit_s)


async def ask(pool: EnginePool, head: bytes = GET) -> tuple[Inbox, EngineFailure | None, bool]:
    inbox = Inbox()
    connection = pool.take()
    reused = connection is not None
    connection = connection or await pool.dial()
    connection.send(head, b"", inbox, reused=reused)
    async with asyncio.timeout(2.0):
        return inbox, await inbox.result, reused


def answering(*pieces: bytes, pause_s: float = 0.0, close: bool = False) -> Script:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            await read_request(reader)
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause_s)
            if close:
                return

    return script


@pytest.fixture
async def plain() -> AsyncIterator[str]:
    async with raw_server(answering(PLAIN)) as url:
        yield url


async def test_a_connection_is_used_again(plain: str) -> None:
    pool = pool_of(plain)
    first, failure, reused = await ask(pool)
    assert (first.body, failure, reused) == (b"hi", None, False)
    second, failure, reused = await ask(pool)
    assert (second.body, failure, reused) == (b"hi", None, True)
    pool.abort()


async def test_a_connection_idle_for_too_long_is_not(plain: str) -> None:
    pool = pool_of(plain, idle_limit_s=0.02)
    await ask(pool)
    await asyncio.sleep(0.05)
    _, failure, reused = await ask(pool)
    assert (failure, reused) == (None, False)
    pool.abort()


@pytest.mark.parametrize(
    ("wire", "body"),
    [
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n", b"abcde"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n", b""),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nz", b"z"),
    ],
)
@pytest.mark.parametrize("cut", [1, 7, 1000])
async def test_framing_survives_any_cut(wire: bytes, body: bytes, cut: int) -> None:
    pieces = [wire[at : at + cut] for at in range(0, len(wire), cut)]
    async with raw_server(answering(*pieces)) as url:
        pool = pool_of(url)
        inbox, failure, _ = await ask(pool)
        assert (inbox.body, failure) == (body, None)
        assert pool.take() is not None
        pool.abort()


async def test_a_body_may_end_with_the_connection() -> None:
    async with raw_server(answering(b"HTTP/1.1 200 OK\r\n\r\nall of it", close=True)) as url:
        pool = pool_of(url)
        inbox, failure, _ = await ask(pool)
        assert (inbox.body, failure) == (b"all of it", None)
        assert pool.take() is None


@pytest.mark.parametrize(
    ("wire", "fault"),
    [
        (b"", Fault.RESET),
        (b"HTTP/1.1 200 OK\r\ncontent-le", Fault.RESET),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nab", Fault.RESET),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nabcde\r\n", Fault.RESET),
        (b"220 smtp ready\r\n\r\n", Fault.PROTOCOL),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\n", Fault.PROTOCOL),
        (b"HTTP/1.1 200 OK\r\nx: " + b"a" * 70_000, Fault.PROTOCOL),
    ],
)
async def test_a_broken_answer_is_a_failure(wire: bytes, fault: Fault) -> None:
    async with raw_server(answering(wire, close=True)) as url:
        _, failure, _ = await ask(pool_of(url))
        assert failure is not None
        assert failure.fault is fault


async def test_a_kept_connection_that_the_engine_closed_is_stale() -> None:
    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(PLAIN)
        await read_request(reader)  # takes the second request and hangs up without a byte

    async with raw_server(script) as url:
        pool = pool_of(url)
        await ask(pool)
        _, failure, reused = await ask(pool)
        assert reused
        assert failure is not None
        assert failure.fault is Fault.STALE


async def test_an_engine_that_speaks_unasked_loses_the_connection() -> None:
    async with raw_server(answering(PLAIN + b"HTTP/1.1 200 OK\r\n")) as url:
        pool = pool_of(url)
        inbox, failure, _ = await ask(pool)
        assert (inbox.body, failure) == (b"hi", None)
        assert pool.take() is None


async def test_an_aborted_request_hears_nothing_more() -> None:
    closed = asyncio.Event()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\nsome")
        await reader.read()
        closed.set()

    async with raw_server(script) as url:
        pool, inbox = pool_of(url), Inbox()
        connection = await pool.dial()
        inbox.after_head = connection.abort
        connection.send(GET, b"", inbox, reused=False)
        async with asyncio.timeout(2.0):
            await closed.wait()
        assert inbox.pieces == []
        assert not inbox.result.done()


async def test_nobody_listens() -> None:
    async with raw_server(answering()) as url:
        pool = pool_of(url)
    with pytest.raises(EngineFailure) as caught:
        await pool.dial()
    assert caught.value.fault is Fault.CONNECT
