"""A client's connection: everyday requests go to a lane, everything else to aiohttp's handler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from backends.http1 import RepeatedHead
from gateway.caller import Caller
from gateway.errors import Cause, GatewayError
from gateway.heads import Head, read_head

log = structlog.get_logger("headrace.edge")

ErrorWriter = Callable[[GatewayError, str, str], web.Response]
_BODY_PATIENCE_S = 1.0
_GATHER_LIMIT = 4 * 1024 * 1024  # bytes of a body that are waited for here


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


class Connection(web.RequestHandler):
    """One connection, with errors below HTTP in our form and silence limited in time.

    A lane serves only while aiohttp waits for a request and its parser stands between two of them: it has got whole
    requests and nothing more, or nothing at all.
    """

    __slots__ = ("_body_at", "_caller", "_head_timeout_s", "_held", "_lane", "_lane_of", "_missing", "_owed",
                 "_patience", "_pieces", "_repeated", "_running", "_untouched", "_write_error")  # fmt: skip

    _caller: Caller
    _lane: Lane

    def __init__(
        self,
        server: web.Server,
        write_error: ErrorWriter,
        lane_of: Callable[[Head], Lane | None],
        head_timeout_s: float,
        **options: Any,
    ) -> None:
        super().__init__(server, **options)
        self._write_error = write_error
        self._lane_of = lane_of
        self._head_timeout_s = head_timeout_s
        self._patience: asyncio.TimerHandle | None = None
        self._untouched = True  # aiohttp has got nothing yet
        self._owed = 0  # bytes that the request it got still lacks; below 0 nobody knows any more
        self._repeated: RepeatedHead | None = None
        self._running: Running | bool = False  # True: a lane is about to say what it is
        self._held = b""  # came while a lane served
        self._pieces: list[bytes] = []  # of a request whose body is not all there
        self._body_at = self._missing = 0

    # --- asyncio.Protocol ---

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the clock for the first request head."""
        super().connection_made(transport)
        self._patience = self._loop.call_later(self._head_timeout_s, self._still_silent)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop the clock and the exchange."""
        if self._patience is not None:
            self._patience.cancel()
        running, self._running = self._running, False
        if not isinstance(running, bool):
            running.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Let a lane serve an everyday request; give everything else to aiohttp."""
        if not data:  # aiohttp passes none, to go on with what its parser holds
            super().data_received(data)
        elif self._running:
            self._hold(data)
        elif self._pieces:
            self._gather(data)
        elif not self._taken(data):
            self._to_aiohttp(data)

    def _taken(self, data: bytes) -> bool:
        """Whether this is a request for a lane, which then has it."""
        if self._owed or not self._idle():
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
        lane = self._lane_of(head) if head is not None else None
        if head is None or lane is None:
            return 0, 0
        if self._patience is not None:
            self._patience.cancel()
        peer = self.transport.get_extra_info("peername") if self.transport is not None else None
        self._lane = lane
        self._caller = lane.caller(head, str(peer[0]) if peer else "")
        self._repeated = RepeatedHead(head.block)
        return self._repeated.body_in(data)

    def _to_aiohttp(self, data: bytes) -> None:
        if not self._owed:
            head = read_head(data)
            self._owed = len(head.block) + head.length if head is not None else -1
        if self._owed > 0:
            left = self._owed - len(data)
            self._owed = left if left >= 0 else -1
        self._untouched = False
        super().data_received(data)

    # --- exchanges in a lane ---

    def _idle(self) -> bool:
        """Whether aiohttp waits for a request."""
        waiter = self._waiter
        return self._untouched or (waiter is not None and not waiter.done())

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
        self._running = self._request_in_progress = True
        running = self._lane.begin(self._caller, body, self)
        if running is None:
            self._running = self._request_in_progress = False
            return False
        if self._running:  # it did not end meanwhile
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
        self._running = self._request_in_progress = False
        if self._handler_waiter is not None:  # a shutdown waits for this exchange
            self._handler_waiter.set_result(None)
        if not keep or self._close:
            self.force_close()
            return
        self._keepalive = True
        self._next_keepalive_close_time = until = self._loop.time() + self._keepalive_timeout
        if self._keepalive_handle is None:
            self._keepalive_handle = self._loop.call_at(until, self._process_keepalive)
        if self._held:
            self._loop.call_soon(self._release)

    def _hold(self, data: bytes) -> None:
        """A client that does not wait for its answer waits until it is there."""
        self._held += data
        self._pause_reading_for_buffer()

    def _release(self) -> None:
        data, self._held = self._held, b""
        self._resume_reading_for_buffer()
        self.data_received(data)

    # --- time and errors ---

    def _process_keepalive(self) -> None:
        if self._running or self._pieces:  # not idle at all: look again later
            later = self._loop.time() + self._keepalive_timeout
            self._keepalive_handle = self._loop.call_at(later, self._process_keepalive)
            return
        super()._process_keepalive()

    def _still_silent(self) -> None:
        if not self._request_count:
            self.force_close()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - it was never parsed
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that are no request, and bugs."""
        if status >= 500:
            log.error("handler failed", error=repr(exc))
            error = GatewayError(Cause.INTERNAL, "internal error")
        else:
            error = _bad_http(exc, message or str(exc))
        response = self._write_error(error, "chat", "")
        response.force_close()
        return response


def _bad_http(exc: BaseException | None, message: str) -> GatewayError:
    first = (message.strip().splitlines() or ["not a request"])[0][:160]
    if isinstance(exc, LineTooLong) or "many headers" in first:
        return GatewayError(Cause.HEADERS_TOO_LARGE, "the request line or the headers are too large")
    return GatewayError(Cause.BAD_REQUEST, f"bad HTTP: {first}")
