"""The engine side of an exchange: pooled keep-alive connections on `asyncio.Protocol`.

A general HTTP client costs more per request than all the rest of the gateway; this one does only what a relay
needs. Bytes are handed to a `Receiver` as they arrive, without a task or a queue in between.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import Protocol, cast
from urllib.parse import urlsplit

from backends.contracts import EngineFailure, Fault
from backends.http1 import (
    HEAD_LIMIT,
    ChunkedBody,
    ProtocolError,
    RepeatedHead,
    ResponseHead,
    SizedBody,
    body_of,
    parse_head,
)

_JOINED = 16 * 1024  # bytes of a body that are copied faster than a transport takes two pieces
_LEARN_EVERY_S = 0.5  # an engine's head changes at most with its date


class Receiver(Protocol):
    """Who gets an answer. Exactly one of `on_end` and `on_failure` is called, last."""

    def on_head(self, head: ResponseHead) -> None:
        """The final (not 1xx) status line and headers."""
        ...

    def on_chunk(self, data: bytes, start: int) -> None:
        """One whole chunk of the transfer coding; the payload is `data[start:-2]`, and never empty."""
        ...

    def on_data(self, data: bytes) -> None:
        """Some payload, transfer coding removed; never empty."""
        ...

    def on_end(self) -> None:
        """The body is complete by its own framing."""
        ...

    def on_failure(self, failure: EngineFailure) -> None:
        """The connection broke or the peer broke the protocol."""
        ...


class Upstream(Protocol):
    """Where one request goes, as an attempt uses it: a connection, or a pair of them."""

    def send(self, head: bytes, body: bytes, receiver: Receiver, *, reused: bool) -> None:
        """Write one request. `head` ends with the empty line; the answer goes to `receiver`."""
        ...

    def pause(self) -> None:
        """Stop reading: the client is slower than the engine."""
        ...

    def resume(self) -> None:
        """Read again after `pause`."""
        ...

    def abort(self) -> None:
        """Give the request up; the receiver hears nothing more."""
        ...


class EngineConnection:
    """One connection to one replica. It serves one request at a time and goes back to its pool in between.

    An `asyncio.Protocol` by its methods alone: only a class without that base can be compiled.
    """

    __slots__ = (
        "_body",
        "_by_close",
        "_head_buffer",
        "_head_request",
        "_keep",
        "_pool",
        "_receiver",
        "_reused",
        "_transport",
        "idle_since",
    )

    def __init__(self, pool: EnginePool) -> None:
        self._pool = pool
        self._transport: asyncio.Transport | None = None
        self._receiver: Receiver | None = None
        self._head_buffer = b""
        self._body: ChunkedBody | SizedBody | None = None
        self._by_close = False
        self._keep = False
        self._head_request = False
        self._reused = False
        self.idle_since = 0.0

    @property
    def alive(self) -> bool:
        """Whether the connection can still be written to."""
        return self._transport is not None and not self._transport.is_closing()

    def send(self, head: bytes, body: bytes, receiver: Receiver, *, reused: bool) -> None:
        """Write one request. `head` ends with the empty line; the answer goes to `receiver`."""
        transport = self._transport
        if transport is None:
            receiver.on_failure(EngineFailure(Fault.STALE, "the engine closed the connection"))
            return
        self._receiver = receiver
        self._reused = reused
        self._body = None
        self._head_buffer = b""
        self._head_request = head.startswith(b"HEAD ")
        if len(body) < _JOINED:
            transport.write(head + body)
        else:
            transport.writelines((head, body))

    def pause(self) -> None:
        """Stop reading: the client is slower than the engine."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume(self) -> None:
        """Read again after `pause`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def abort(self) -> None:
        """Give the request up; the engine sees the connection close. The receiver hears nothing more."""
        self._receiver = None
        if self._transport is not None:
            self._transport.abort()

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        """Feed the parser and hand the payload on."""
        receiver = self._receiver
        if receiver is None:  # nobody asked: an engine that speaks unasked is not to be reused
            self.abort()
            return
        try:
            body = self._body
            if body is None:
                known = self._pool.known_head
                if known is not None and not self._head_buffer and (at := known[0].body_at(data)):
                    self._whole(receiver, known[1], data[at:])
                    return
                started = self._head(receiver, data)
                if started is None or self._receiver is not receiver:
                    return
                body, data = started
            self._payload(receiver, body, data)
        except ProtocolError as error:
            self._end_with(EngineFailure(Fault.PROTOCOL, f"the engine broke HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - whatever broke, the meaning is the same
        """Tell the receiver what the loss of the connection means for its answer."""
        self._transport = None
        self._pool.forget(self)
        receiver, self._receiver = self._receiver, None
        if receiver is None:
            return
        if self._by_close and self._body is not None:
            receiver.on_end()
        elif self._body is None and not self._head_buffer and self._reused:
            receiver.on_failure(EngineFailure(Fault.STALE, "the engine closed a kept connection"))
        else:
            receiver.on_failure(EngineFailure(Fault.RESET, "the engine closed the connection before its answer ended"))

    def eof_received(self) -> None:
        """The engine sends no more; the loss of the connection follows."""

    def pause_writing(self) -> None:
        """A request waits in the transport until the engine has read what is before it."""

    def resume_writing(self) -> None:
        """See `pause_writing`."""

    # --- parsing ---

    def _whole(self, receiver: Receiver, head: ResponseHead, payload: bytes) -> None:
        """An everyday answer: all of it at once, under a head that is known."""
        receiver.on_head(head)
        if payload and self._receiver is receiver:
            receiver.on_data(payload)
        if self._receiver is receiver:
            self._receiver = None
            self._pool.give_back(self)
            receiver.on_end()

    def _head(self, receiver: Receiver, data: bytes) -> tuple[ChunkedBody | SizedBody, bytes] | None:
        """Look for the end of the head; returns the body's decoder and the bytes after the head."""
        if self._head_buffer:
            data = self._head_buffer + data
        stop = data.find(b"\r\n\r\n")
        if stop < 0:
            if len(data) > HEAD_LIMIT:
                raise ProtocolError("response head too large")
            self._head_buffer = data
            return None
        head = parse_head(data[:stop])
        self._head_buffer = b""
        rest = data[stop + 4 :]
        if head.status < 200:
            return self._head(receiver, rest)
        body, self._by_close = body_of(head, head_request=self._head_request)
        if head.status == 200 and head.keep_alive and isinstance(body, SizedBody) and not self._head_request:
            self._pool.learn_head(data[: stop + 4], head)
        self._body = body
        self._keep = head.keep_alive
        receiver.on_head(head)
        return body, rest

    def _payload(self, receiver: Receiver, body: ChunkedBody | SizedBody, data: bytes) -> None:
        if isinstance(body, ChunkedBody) and (start := body.whole(data)):
            receiver.on_chunk(data, start)
            return
        payload = body.feed(data) if data else b""
        if payload:
            receiver.on_data(payload)
        if body.done and self._receiver is receiver:
            self._receiver = None
            if self._keep and not body.rest and self.alive:
                self._pool.give_back(self)
            elif self._transport is not None:
                self._transport.close()
            receiver.on_end()

    def _end_with(self, failure: EngineFailure) -> None:
        receiver = self._receiver
        self.abort()
        if receiver is not None:
            receiver.on_failure(failure)


class EnginePool:
    """Connections to one replica. Idle ones are reused last in, first out while younger than `idle_limit_s`."""

    __slots__ = ("_closed", "_idle", "_idle_limit_s", "_learn_at_s", "_loop", "_open", "_ssl", "address", "connect_s",
                 "host", "known_head", "path")  # fmt: skip

    def __init__(self, url: str, *, connect_s: float, idle_limit_s: float, tls: ssl.SSLContext | None = None) -> None:
        parts = urlsplit(url)
        secure = parts.scheme == "https"
        self.address = (parts.hostname or "", parts.port or (443 if secure else 80))
        self.host = parts.netloc.rpartition("@")[2]  # as in the Host header
        self.path = parts.path.rstrip("/")  # goes before every path asked for
        self._ssl = (tls or ssl.create_default_context()) if secure else None
        self.connect_s = connect_s
        self._idle_limit_s = idle_limit_s
        self._idle: deque[EngineConnection] = deque()
        self._open: set[EngineConnection] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self.known_head: tuple[RepeatedHead, ResponseHead] | None = None  # of the last answer with a length
        self._learn_at_s = 0.0

    def take(self) -> EngineConnection | None:
        """An idle connection that is fresh enough, or None."""
        idle, oldest = self._idle, self._loop.time() - self._idle_limit_s
        while idle:
            connection = idle.pop()
            if connection.alive and connection.idle_since >= oldest:
                return connection
            connection.abort()
        return None

    async def dial(self) -> EngineConnection:
        """Open a new connection. Raises EngineFailure (CONNECT or TIMEOUT)."""
        host, port = self.address
        try:
            async with asyncio.timeout(self.connect_s):
                _, protocol = await self._loop.create_connection(
                    lambda: cast("asyncio.Protocol", EngineConnection(self)), host, port, ssl=self._ssl
                )
        except TimeoutError:
            raise EngineFailure(Fault.TIMEOUT, "the engine did not accept a connection in time") from None
        except OSError:
            raise EngineFailure(Fault.CONNECT, "the engine refused the connection") from None
        connection = cast("EngineConnection", protocol)
        self._open.add(connection)
        return connection

    def give_back(self, connection: EngineConnection) -> None:
        """Keep a connection whose answer is complete for the next request."""
        if self._closed:
            connection.abort()
            return
        connection.idle_since = self._loop.time()
        self._idle.append(connection)

    def learn_head(self, block: bytes, head: ResponseHead) -> None:
        """Remember a head that was read, to know it again. `block` is all of it, with the empty line."""
        now_s = self._loop.time()
        if now_s >= self._learn_at_s:
            self._learn_at_s = now_s + _LEARN_EVERY_S
            self.known_head = RepeatedHead(block), head

    def forget(self, connection: EngineConnection) -> None:
        """Drop a connection that is gone."""
        self._open.discard(connection)
        if connection.idle_since and connection in self._idle:
            self._idle.remove(connection)

    def close(self) -> None:
        """Close idle connections now and busy ones when their answer ends."""
        self._closed = True
        while self._idle:
            self._idle.pop().abort()

    def abort(self) -> None:
        """Close every connection, busy ones too."""
        self._closed = True
        for connection in tuple(self._open):
            connection.abort()
