"""Streams that hold their end back, or have no connection."""

import asyncio
from typing import Any

from aiohttp.test_utils import make_mocked_request

from gateway.responses.streams import DetachedStream, HeldStream
from gateway.responses.websocket import events_of
from gateway.stream import HIGH_WATER


class Transport:
    """Remembers what was written."""

    def __init__(self) -> None:
        self.written = b""

    def write(self, data: bytes) -> None:
        self.written += data

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return default


def held() -> tuple[HeldStream, Transport]:
    transport = Transport()
    return HeldStream.of(make_mocked_request("POST", "/", transport=transport)), transport


def detached() -> DetachedStream:
    return DetachedStream()


async def test_the_end_is_held_until_released() -> None:
    stream, transport = held()
    final = False
    stream.hold_from(lambda: final)
    stream.begin(b"text/event-stream", b"", b"first")
    final = True
    stream.send(b"last")
    stream.end()
    assert stream.ended
    assert b"first" in transport.written
    assert b"last" not in transport.written
    stream.release()
    assert transport.written.endswith(b"4\r\nlast\r\n0\r\n\r\n")
    sent = transport.written
    stream.release()
    assert transport.written == sent


async def test_without_a_reason_nothing_is_held() -> None:
    stream, transport = held()
    stream.whole(200, b"application/json", b"{}", b"")
    assert transport.written.endswith(b"\r\n\r\n{}")


async def test_events_come_one_by_one_from_any_split() -> None:
    stream = detached()
    stream.begin(b"", b"", b"event: a\nda")
    stream.send(b"ta: 1\n\nevent: b\ndata: 2\n\n")

    async def rest() -> None:
        await asyncio.sleep(0)
        stream.end(b"data: 3\n\n")

    task = asyncio.ensure_future(rest())
    blocks = [block async for block in events_of(stream)]
    await task
    assert blocks == [b"event: a\ndata: 1", b"event: b\ndata: 2", b"data: 3"]
    assert stream.status == 200


async def test_a_refusal_is_no_event() -> None:
    stream = detached()
    stream.whole(404, b"application/json", b"{}", b"")
    assert [block async for block in events_of(stream)] == []
    assert (stream.status, stream.refusal) == (404, b"{}")


async def test_what_waits_holds_the_engine_back() -> None:
    stream = detached()
    assert not stream.send(b"x\n\n")
    assert stream.send(b"x" * HIGH_WATER + b"\n\n")
    assert not stream.flowing
    stream.take()
    assert stream.flowing
    assert not stream.gone
    stream.leave()
    assert stream.gone
