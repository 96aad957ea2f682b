"""The client's side of an exchange: bytes written straight to its transport, nothing before `commit`."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from email.utils import formatdate
from typing import Self

from aiohttp import web
from aiohttp.http_writer import HttpVersion11

HIGH_WATER = 256 * 1024  # bytes unsent to a client before the engine is paused
LOW_WATER = 64 * 1024

_REASONS = {
    200: b"OK",
    400: b"Bad Request",
    401: b"Unauthorized",
    402: b"Payment Required",
    403: b"Forbidden",
    404: b"Not Found",
    405: b"Method Not Allowed",
    408: b"Request Timeout",
    409: b"Conflict",
    413: b"Content Too Large",
    415: b"Unsupported Media Type",
    426: b"Upgrade Required",
    429: b"Too Many Requests",
    431: b"Request Header Fields Too Large",
    500: b"Internal Server Error",
    502: b"Bad Gateway",
    503: b"Service Unavailable",
    504: b"Gateway Timeout",
    529: b"Overloaded",
}


class DateLine:
    """The `date` header, formatted once a second."""

    __slots__ = ("_line", "_second")

    def __init__(self) -> None:
        self._second = -1
        self._line = b""

    def at(self, now: float) -> bytes:
        """`date: …\\r\\n` for a time in seconds since the epoch."""
        second = int(now)
        if second != self._second:
            self._second = second
            self._line = b"date: %s\r\n" % formatdate(second, usegmt=True).encode()
        return self._line


class Written(web.StreamResponse):
    """Tells aiohttp that the answer has gone out already."""

    def __init__(self, status: int, *, keep_alive: bool) -> None:
        super().__init__(status=status)
        self._lasting = keep_alive

    @property
    def prepared(self) -> bool:
        """True: there is nothing left to send."""
        return True

    @property
    def keep_alive(self) -> bool:
        """Whether the connection serves another request."""
        return self._lasting

    async def prepare(self, request: web.BaseRequest) -> None:  # noqa: ARG002
        """Nothing to prepare."""
        return

    async def write_eof(self, data: bytes = b"") -> None:  # noqa: ARG002
        """Nothing to end."""
        return


class ClientStream:
    """Writes one answer. Headers are given when the first byte goes out, which may be late on purpose."""

    __slots__ = ("_close", "_extra", "_of_attempt", "_transport", "chunked", "committed", "ended", "sent_bytes",
                 "status")  # fmt: skip

    def __init__(self, transport: asyncio.Transport | None, *, chunked: bool = True, close: bool = False) -> None:
        """`chunked`: the client knows that framing. `close`: end the connection after this answer."""
        self._transport = transport
        self.chunked = chunked
        self._close = close
        self._extra: list[bytes] = []
        self._of_attempt = b""
        self.committed = False
        self.ended = False
        self.status = 0
        self.sent_bytes = 0

    @classmethod
    def of(cls, request: web.BaseRequest, *, close: bool = False) -> Self:
        """The stream that answers a request on its own connection."""
        return cls(request.transport, chunked=request.version >= HttpVersion11, close=close or not request.keep_alive)

    def header_lines(self, lines: bytes) -> None:
        """Add response headers as they go on the wire, each line ended; only before the first byte."""
        self._extra.append(lines)

    def header(self, name: bytes, value: str) -> None:
        """Add a response header; only before the first byte. Line breaks cannot get in."""
        self._extra.append(header_line(name, value))

    def attempt_lines(self, lines: bytes) -> None:
        """`attempt_headers` as they go on the wire."""
        self._of_attempt = lines

    def attempt_headers(self, headers: Mapping[str, str]) -> None:
        """Set the headers that belong to the current attempt, in place of those of the one before."""
        self._of_attempt = b"".join([header_line(name.encode(), value) for name, value in headers.items()])

    @property
    def gone(self) -> bool:
        """Whether the client has left."""
        return self._transport is None or self._transport.is_closing()

    @property
    def flowing(self) -> bool:
        """Whether a paused engine may go on."""
        return self._transport is None or self._transport.get_write_buffer_size() <= LOW_WATER

    @property
    def lasting(self) -> bool:
        """Whether the answer is complete and the connection may serve another request."""
        return self.ended and not self._close

    def whole(self, status: int, content_type: bytes, body: bytes, date: bytes, *, head_only: bool = False) -> None:
        """Send a complete answer in one write."""
        head = self._head(status, content_type, date, b"content-length: %d\r\n" % len(body))
        self._write(head if head_only else head + body)
        self.ended = True

    def begin(self, content_type: bytes, date: bytes, first: bytes) -> None:
        """Commit to a streamed answer with status 200 and send what is there (`first` may be empty)."""
        framing = b"transfer-encoding: chunked\r\n" if self.chunked else b""
        self._close = self._close or not self.chunked  # an HTTP/1.0 body ends with the connection
        head = self._head(200, content_type, date, b"cache-control: no-cache\r\nx-accel-buffering: no\r\n" + framing)
        self._write(head + self._framed(first))

    def send(self, data: bytes) -> bool:
        """Send some of a streamed answer. True: so much waits to be sent that the engine should be paused."""
        transport = self._transport
        if transport is None:
            return False
        return self.send_chunk(self._framed(data))

    def send_chunk(self, chunk: bytes) -> bool:
        """`send` for bytes that have their framing; only to a client that knows it (`chunked`)."""
        transport = self._transport
        if transport is None:
            return False
        self.sent_bytes += len(chunk)
        transport.write(chunk)
        return transport.get_write_buffer_size() > HIGH_WATER

    def end(self, last: bytes = b"") -> None:
        """Finish a streamed answer."""
        data = self._framed(last)
        self._write(data + b"0\r\n\r\n" if self.chunked else data)
        self.ended = True

    def abort(self) -> None:
        """End the connection at once; what the client has not taken is lost."""
        if self._transport is not None:
            self._transport.abort()

    def response(self) -> Written:
        """What the handler returns once the answer has ended; a broken one costs the connection."""
        if not self.ended and self._transport is not None:
            self._transport.close()
        return Written(self.status or 500, keep_alive=self.lasting)

    def _head(self, status: int, content_type: bytes, date: bytes, framing: bytes) -> bytes:
        self.committed = True
        self.status = status
        closing = b"connection: close\r\n" if self._close else b""
        line = b"HTTP/1.1 %d %s\r\ncontent-type: %s\r\n" % (status, _REASONS.get(status, b"Status"), content_type)
        return b"".join((line, framing, date, closing, *self._extra, self._of_attempt, b"\r\n"))

    def _framed(self, data: bytes) -> bytes:
        if not data or not self.chunked:
            return data
        return b"%x\r\n%b\r\n" % (len(data), data)

    def _write(self, data: bytes) -> None:
        if data and self._transport is not None and not self._transport.is_closing():  # uvloop raises on a closed one
            self.sent_bytes += len(data)
            self._transport.write(data)


def header_line(name: bytes, value: str) -> bytes:
    """A header as it goes on the wire. Line breaks cannot get in."""
    return b"%b: %b\r\n" % (name, value.encode("latin-1", "replace").translate(None, b"\r\n"))


async def flowing(stream: ClientStream, limit_s: float) -> bool:
    """Wait until a slow client has taken most of what waits for it; False when it did not within `limit_s`."""
    loop = asyncio.get_running_loop()
    until = loop.time() + limit_s
    while not stream.gone and loop.time() < until:
        if stream.flowing:
            return True
        # The transport tells only its own protocol when it drains; a slow client can wait for a look.
        await asyncio.sleep(0.01)
    return False
