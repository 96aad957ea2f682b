"""A client's connection: everyday requests go to a lane, everything else to aiohttp's handler."""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from aiohttp.tcp_helpers import tcp_keepalive

from backends.http1 import RepeatedHead
from gateway.caller import Caller
from gateway.heads import Head, read_head

_BODY_PATIENCE_S = 1.0
_GATHER_LIMIT = 4 * 1024 * 1024  # bytes of a body that are waited for here
_HELD_LIMIT = 64 * 1024  # bytes that are read ahead while a lane serves; less, and nobody would notice a client leave
_LINGER_S = 5.0  # for a client to take what was written before its connection was closed


class Running(Protocol):
    """An exchange on its way in a lane."""

    def cancel(self) -> None:
        """The client has left."""
        ...


class Lane(Protocol):
    """Serves everyday requests without aiohttp."""

    def caller(self, head: Head, address: str) -> Caller:
        """What `begin` has to know of the head, for every request that repeats it."""
        ...

    def begin(self, caller: Caller, body: bytes, client: Connection) -> Running | None:
        """Serve a request and tell `client.answered` at the end. None: nothing has happened, aiohttp is to serve it."""
        ...


class Fallback(Protocol):
    """aiohttp's handler, which serves what no lane does: what a connection asks of it besides `asyncio.Protocol`."""

    @property
    def idle(self) -> bool:
        """Whether it waits for a request."""
        ...

    @property
    def unasked(self) -> bool:
        """Whether it never got a whole head."""
        ...

    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...  # noqa: D102 - asyncio's
    def connection_lost(self, exc: BaseException | None) -> None: ...  # noqa: D102
    def data_received(self, data: bytes) -> None: ...  # noqa: D102
    def pause_writing(self) -> None: ...  # noqa: D102
    def resume_writing(self) -> None: ...  # noqa: D102
    def close(self) -> None: ...  # noqa: D102
    def force_close(self) -> None: ...  # noqa: D102


class Edge(Protocol):
    """The listener that connections belong to."""

    clients: set[Connection]
    head_timeout_s: float
    keepalive_s: float

    def lane_of(self, head: Head) -> Lane | None:
        """The lane that may serve requests with this head."""
        ...

    def handler(self, connection: Connection) -> Fallback:
        """A new handler of aiohttp's."""
        ...


class Connection:
    """One connection, with silence limited in time. aiohttp's handler is there from the first request for it on.

    A lane serves only while aiohttp waits for a request and its parser stands between two of them: it has got whole
    requests and nothing more, or nothing at all. An `asyncio.Protocol` by its methods alone: only a class without that
    base can be compiled.
    """

    __slots__ = ("_body_at", "_caller", "_edge", "_full", "_handler", "_held", "_lane", "_last", "_loop", "_missing",
                 "_owed", "_patience", "_patience_until", "_pieces", "_reading", "_repeated", "_running", "_silence",
                 "transport")  # fmt: skip

    _caller: Caller
    _lane: Lane

    def __init__(self, edge: Edge, loop: asyncio.AbstractEventLoop) -> None:
        self._edge = edge
        self._loop = loop
        self.transport: asyncio.Transport | None = None
        self._handler: Fallback | None = None
        self._owed = 0  # bytes that the request aiohttp got still lacks; below 0 nobody knows any more
        self._silence: asyncio.TimerHandle | None = None
        self._patience_until = 0.0  # loop time at which a silent client is given up
        self._patience: asyncio.TimerHandle | None = None  # with a body that is long in coming
        self._repeated: RepeatedHead | None = None
        self._running: Running | bool = False  # True: a lane is about to say what it is
        self._last = False  # no further request is served
        self._held = b""  # came while a lane served
        self._reading = True  # as far as this is about the transport
        self._full = False  # the client is slower than what is written to it
        self._pieces: list[bytes] = []  # of a request whose body is not all there
        self._body_at = self._missing = 0

    @property
    def busy(self) -> bool:
        """Whether a lane has to do with it."""
        return self._running is not False or bool(self._pieces)

    @property
    def patience_until(self) -> float:
        """Until when silence is no reason to end it, in the loop's time."""
        return self._loop.time() + self._edge.keepalive_s if self.busy else self._patience_until

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock for the first request head."""
        self.transport = cast("asyncio.Transport", transport)
        tcp_keepalive(self.transport)
        self._edge.clients.add(self)
        self._patience_until = self._loop.time() + self._edge.head_timeout_s
        self._silence = self._loop.call_at(self._patience_until, self._still_silent)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the clocks and the exchange, and let go of everything: collections of garbage are rare."""
        self.transport = None
        self._edge.clients.discard(self)
        self._stop_clocks()
        self._pieces, self._held = [], b""
        running, self._running = self._running, False
        if not isinstance(running, bool):
            running.cancel()
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Let a lane serve an everyday request; give everything else to aiohttp."""
        if self._running is not False or self._held:
            self._hold(data)
        elif self._pieces:
            self._gather(data)
        elif not self._taken(data):
            self._to_aiohttp(data)

    def eof_received(self) -> None:
        """The client sends no more; the transport closes."""

    def pause_writing(self) -> None:
        """The client is slower than what is written. A lane looks at the transport itself."""
        self._full = True
        if self._handler is not None:
            self._handler.pause_writing()

    def resume_writing(self) -> None:
        """The client has taken most of it."""
        self._full = False
        if self._handler is not None:
            self._handler.resume_writing()
        if self._running is False:
            self._read_on()

    # --- who serves ---

    def _taken(self, data: bytes) -> bool:
        """Whether this is a request for a lane, which then has it."""
        handler = self._handler
        if self._last or (handler is not None and (self._owed or not handler.idle)):
            return False
        at = missing = 0
        if self._repeated is not None:
            at, missing = self._repeated.body_in(data)
        if not at:
            at, missing = self._learn(data)
        return at > 0 and self._serve(data, at, missing)

    def _learn(self, data: bytes) -> tuple[int, int]:
        """Read a head for a lane: where the body begins and how many bytes of it are missing; (0, 0) for aiohttp."""
        self._repeated = None
        head = read_head(data)
        lane = self._edge.lane_of(head) if head is not None else None
        if head is None or lane is None:
            return 0, 0
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        self._lane = lane
        self._caller = lane.caller(head, str(peer[0]) if peer else "")
        self._repeated = repeated = RepeatedHead(head.block)
        return repeated.body_in(data)

    def _to_aiohttp(self, data: bytes) -> None:
        handler = self._handler
        if handler is None:
            if self.transport is None:
                return
            handler = self._handler = self._edge.handler(self)
            handler.connection_made(self.transport)
            if self._full:
                handler.pause_writing()
        if not self._owed:
            head = read_head(data)
            self._owed = len(head.block) + head.length if head is not None else -1
        if self._owed > 0:
            left = self._owed - len(data)
            self._owed = left if left >= 0 else -1
        handler.data_received(data)

    # --- exchanges in a lane ---

    def _serve(self, data: bytes, at: int, missing: int) -> bool:
        """Have a request served whose body begins at `at`, or wait for the rest of it; False: aiohttp is to do it."""
        if missing > _GATHER_LIMIT:
            return False
        if missing:
            self._pieces = [data]
            self._body_at, self._missing = at, missing
            self._patience = self._loop.call_later(_BODY_PATIENCE_S, self._give_up)
            return True
        return self._begin(data[at:])

    def _begin(self, body: bytes) -> bool:
        """Give a request to the lane; False: it is not for it."""
        self._running = True
        running = self._lane.begin(self._caller, body, self)
        if running is None:
            self._running = False
            return False
        if self._running is not False:  # it did not end meanwhile
            self._running = running
        return True

    def _gather(self, data: bytes) -> None:
        """More of a body."""
        pieces = self._pieces
        pieces.append(data)
        self._missing -= len(data)
        if self._missing > 0:
            return
        first, *rest = self._gathered()
        if self._missing or not self._begin(b"".join((memoryview(first)[self._body_at :], *rest))):
            self._to_aiohttp(b"".join(pieces))

    def _gathered(self) -> list[bytes]:
        pieces, self._pieces = self._pieces, []
        if self._patience is not None:
            self._patience.cancel()
        return pieces

    def _give_up(self) -> None:
        """A body that is long in coming is for aiohttp to wait for, within its limits."""
        self._to_aiohttp(b"".join(self._gathered()))

    def answered(self, *, keep: bool) -> None:
        """An exchange of the lane is over. Not `keep`: the connection has to end."""
        self._running = False
        if not keep or self._last:
            self.end()
            return
        self._patience_until = self._loop.time() + self._edge.keepalive_s
        if self._full:  # no further request until it has taken more of the answers
            self._stop_reading()
        elif self._held:
            self._loop.call_soon(self._read_on)

    def _hold(self, data: bytes) -> None:
        """A client that does not wait for its answer waits until it is there."""
        self._held += data
        if len(self._held) > _HELD_LIMIT:
            self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading and self.transport is not None and not self.transport.is_closing():
            self._reading = False
            self.transport.pause_reading()

    def _read_on(self) -> None:
        """Go on with what was held, and read."""
        if self.transport is None or self.transport.is_closing() or self._running is not False:
            return
        if not self._reading:
            self._reading = True
            self.transport.resume_reading()
        data, self._held = self._held, b""
        if data:
            self.data_received(data)

    # --- the end ---

    def close(self) -> None:
        """Serve no further request: end when nothing is being served any more."""
        self._last = True
        if self._running is not False:
            return
        if self._handler is not None and not self._handler.idle:
            self._handler.close()
        else:
            self.end()

    def end(self) -> None:
        """Close the connection once what was written has been sent, or has not been for long."""
        self._stop_clocks()
        self._pieces = []
        transport = self.transport
        if transport is None:
            return
        self._silence = self._loop.call_later(_LINGER_S, transport.abort)
        if self._handler is not None:
            self._handler.force_close()
        else:
            transport.close()

    def _stop_clocks(self) -> None:
        for timer in (self._silence, self._patience):
            if timer is not None:
                timer.cancel()

    def _still_silent(self) -> None:
        """End a connection on which nobody asks; aiohttp looks itself once it was asked."""
        until = self.patience_until
        if self._loop.time() < until:
            self._silence = self._loop.call_at(until, self._still_silent)
        elif self._handler is None or self._handler.unasked:
            self.end()
