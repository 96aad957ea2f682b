"""One attempt at one replica: the engine's bytes through the transcoder to the client, without a task between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from backends.client import EngineConnection
from backends.contracts import Clock, EngineFailure, Fault
from backends.engines.base import EngineKind
from backends.fleet import Lease
from backends.http1 import ResponseHead
from gateway.config.model import Timeouts
from gateway.dialects.base import Transcoder
from gateway.stream import ClientStream, flowing
from gateway.telemetry.record import AttemptRecord, ExchangeRecord

_ERROR_BODY_LIMIT = 64 * 1024
_ANSWER_LIMIT = 64 * 1024 * 1024  # of an answer that is not streamed
EVENT_STREAM = b"text/event-stream; charset=utf-8"
JSON = b"application/json"


class Attempt:
    """Receives one answer and passes it on. `run` returns None when the client has all of it.

    Nothing reaches the client before the engine's first real frame (`Transcoder.started`), so that a failure until
    then leaves room for another attempt.
    """

    __slots__ = (
        "_client_streams",
        "_clock",
        "_collected",
        "_connection",
        "_content_type",
        "_date",
        "_done",
        "_flows",
        "_heartbeat_s",
        "_kind",
        "_lease",
        "_loop",
        "_on_first_token",
        "_paused",
        "_pending",
        "_record",
        "_seen",
        "_started",
        "_status",
        "_stream",
        "_streamed",
        "_timeouts",
        "_timer",
        "_transcoder",
        "_wake",
        "aborted",
        "exchange",
    )

    def __init__(
        self,
        *,
        kind: EngineKind,
        transcoder: Transcoder,
        stream: ClientStream,
        streamed: bool,
        client_streams: bool,
        lease: Lease,
        exchange: ExchangeRecord,
        record: AttemptRecord,
        timeouts: Timeouts,
        heartbeat_s: float,
        clock: Clock,
        date: Callable[[], bytes],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._kind = kind
        self._transcoder = transcoder
        self._stream = stream
        self._streamed = streamed
        self._client_streams = client_streams  # an engine may stream for a client that does not
        self._lease = lease
        self.exchange = exchange
        self._record = record
        self._timeouts = timeouts
        self._heartbeat_s = heartbeat_s
        self._clock = clock
        self._date = date
        self._connection: EngineConnection | None = None
        self._wake: asyncio.Future[None] = self._loop.create_future()
        self._done: EngineFailure | bool = False
        self._collected: list[bytes] | None = None  # the body of an error or of an answer that is not streamed
        self._content_type = ""
        self._status = 0
        self._pending = b""
        self._flows = False  # this attempt has sent something semantic
        self._paused = False
        self._started = self._seen = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.aborted = False  # the engine was left while it may still have been working

    async def run(
        self, connection: EngineConnection, head: bytes, body: bytes, *, reused: bool
    ) -> EngineFailure | None:
        """Send the request and pass the answer on. Cancelling this gives the engine's work up at once."""
        self._connection = connection
        self._arm()
        try:
            connection.send(head, body, self, reused=reused)
            while self._done is False:
                await self._wake
                if self._paused and self._done is False:
                    await self._let_client_drain()
        except asyncio.CancelledError:
            self._leave()
            raise
        finally:
            if self._timer is not None:
                self._timer.cancel()
        return self._done if isinstance(self._done, EngineFailure) else None

    async def _let_client_drain(self) -> None:
        self._wake = self._loop.create_future()
        if not await flowing(self._stream, self._timeouts.idle_s):
            self._finish(EngineFailure(Fault.CLIENT, "the client stopped reading", status=499))
            return
        self._paused = False
        self._seen = self._loop.time()
        if self._connection is not None:
            self._connection.resume()

    # --- Receiver ---

    def on_head(self, head: ResponseHead) -> None:
        """Status and headers of the engine."""
        self._status = self._record.status = head.status
        self._content_type = head.content_type
        self._seen = self._loop.time()
        if head.status != 200 or not self._streamed or self._content_type != "text/event-stream":
            self._collected = []

    def on_data(self, data: bytes) -> None:
        """Some payload of the engine."""
        self._seen = self._loop.time()
        record = self._record
        if not record.first_byte:
            record.first_byte = self._clock.monotonic()
            self._hurry()
        record.received_bytes += len(data)
        if self._collected is not None:
            self._collect(data)
            return
        transcoder = self._transcoder
        out = transcoder.feed(data)
        if transcoder.failure is not None:
            self._finish(transcoder.failure)
            return
        if not self._flows:
            self._pending += out
            if transcoder.started and self._client_streams:
                self._commit()
        elif out:
            self._stream.send(out)
            self._hold_back()
        if transcoder.abort_engine:
            self._end_stream()
            self._finish(None)

    def on_end(self) -> None:
        """The engine's body is complete."""
        if self._done is not False:
            return
        if self._collected is not None:
            self._whole(b"".join(self._collected))
            return
        self._connection = None
        self._end_stream()
        self._finish(self._transcoder.failure)

    def on_failure(self, failure: EngineFailure) -> None:
        """The connection broke."""
        self._connection = None
        self._finish(failure)

    # --- towards the client ---

    def _first_token(self) -> None:
        if not self.exchange.first_token:
            self.exchange.first_token = self._clock.monotonic()
        self._lease.first_token()

    def _commit(self) -> None:
        self._flows = True
        self._first_token()
        pending, self._pending = self._pending, b""
        if self._stream.committed:
            self._stream.send(pending)
        else:
            self._stream.begin(EVENT_STREAM, self._date(), pending)
        self._hold_back()

    def _end_stream(self) -> None:
        last = self._transcoder.eof()
        if self._transcoder.failure is not None:
            return
        if not self._client_streams:
            self._first_token()
            self._stream.whole(200, JSON, last, self._date())
            return
        if not self._flows:
            self._pending += last
            last = b""
            self._commit()
        self._stream.end(last)

    def _hold_back(self) -> None:
        if self._stream.clogged and not self._paused and self._connection is not None:
            self._paused = True
            self._connection.pause()
            self._notify()

    def _collect(self, data: bytes) -> None:
        if self._collected is None:
            return
        if self._status == 200 and self._record.received_bytes > _ANSWER_LIMIT:
            self._finish(EngineFailure(Fault.PROTOCOL, "the engine's answer is too large"))
        elif self._status == 200 or self._record.received_bytes <= _ERROR_BODY_LIMIT:
            self._collected.append(data)

    def _whole(self, body: bytes) -> None:
        """A complete body: an answer that is not streamed, or an error."""
        self._connection = None
        if self._status >= 400:
            self._finish(self._kind.failure(self._status, self._content_type, body))
        elif self._status != 200:
            self._finish(EngineFailure(Fault.PROTOCOL, f"the engine answered with status {self._status}"))
        elif self._streamed and self._client_streams:
            failure = self._kind.frame_failure(body)
            self._finish(failure or EngineFailure(Fault.PROTOCOL, "the engine did not stream"))
        else:
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        transcoder = self._transcoder
        out = transcoder.feed(body) + transcoder.eof()
        if transcoder.failure is None:
            self._first_token()
            self._stream.whole(200, JSON, out, self._date())
        self._finish(transcoder.failure)

    # --- time ---

    def _arm(self) -> None:
        """Set the one timer to the next moment something may have to be done."""
        limits = self._timeouts
        quiet = limits.idle_s if self._record.first_byte else limits.first_byte_s
        at = min(self._seen + quiet, self._started + limits.total_s)
        if self._client_streams:
            at = min(at, max(self._seen, self._loop.time()) + self._heartbeat_s)
        self._timer = self._loop.call_at(at, self._look)

    def _hurry(self) -> None:
        """From the first byte on another limit holds, which may end sooner than the timer."""
        timer = self._timer
        if timer is not None and timer.when() > self._seen + self._timeouts.idle_s:
            timer.cancel()
            self._arm()

    def _look(self) -> None:
        if self._done is not False:
            return
        now, limits = self._loop.time(), self._timeouts
        what = self._overdue(now, limits)
        if what and not self._paused:
            self._finish(EngineFailure(Fault.TIMEOUT, what))
            return
        if self._client_streams and now - self._seen >= self._heartbeat_s and not self._paused:
            self._beat()
        self._arm()

    def _overdue(self, now: float, limits: Timeouts) -> str:
        if now - self._started >= limits.total_s:
            return f"the answer took more than {limits.total_s:g} s"
        if not self._record.first_byte:
            late = now - self._started >= limits.first_byte_s
            return f"no first byte from the engine within {limits.first_byte_s:g} s" if late else ""
        return f"the engine was silent for {limits.idle_s:g} s" if now - self._seen >= limits.idle_s else ""

    def _beat(self) -> None:
        beat = self._transcoder.keepalive()
        if not beat:
            return
        if self._stream.committed:
            self._stream.send(beat)
        else:
            self._stream.begin(EVENT_STREAM, self._date(), beat)

    # --- the end ---

    def _finish(self, failure: EngineFailure | None) -> None:
        if self._done is not False:
            return
        self._done = failure or True
        self._leave()
        self._notify()

    def _leave(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            self.aborted = True
            connection.abort()

    def _notify(self) -> None:
        if not self._wake.done():
            self._wake.set_result(None)
