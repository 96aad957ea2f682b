"""One attempt at one replica: the engine's bytes through the transcoder to the client, without a task between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from backends.client import Upstream
from backends.contracts import Clock, EngineFailure, Fault
from backends.fleet import Lease
from backends.http1 import ResponseHead
from gateway.config.model import Timeouts
from gateway.dialects.base import Transcoder
from gateway.dialects.passthrough import PassThrough
from gateway.runtime import PoolRuntime
from gateway.stream import ClientStream, DateLine, flowing
from gateway.telemetry.record import AttemptRecord, ExchangeRecord
from gateway.watch import Watch

Settled = Callable[[EngineFailure | None], None]
Spawn = Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

_ERROR_BODY_LIMIT = 64 * 1024
_ANSWER_LIMIT = 64 * 1024 * 1024  # of an answer that is not streamed
EVENT_STREAM = b"text/event-stream; charset=utf-8"
JSON = b"application/json"


class AttemptKit:
    """What all attempts of a process share."""

    __slots__ = ("_dates", "clock", "loop", "spawn", "watch")

    def __init__(self, clock: Clock, watch: Watch, spawn: Spawn) -> None:
        """To be made inside the running loop. `spawn(coroutine, name)` starts a supervised task."""
        self.clock = clock
        self.watch = watch
        self.spawn = spawn
        self.loop = asyncio.get_running_loop()
        self._dates = DateLine()

    def date(self) -> bytes:
        """The `date` header line of now."""
        return self._dates.at(self.clock.time())


class Attempt:
    """Receives one answer and passes it on, and says once how that ended.

    Nothing reaches the client before the engine's first real frame (`Transcoder.started`), so that a failure until
    then leaves room for another attempt.
    """

    __slots__ = (
        "_beaten_s",
        "_client_streams",
        "_collected",
        "_connection",
        "_done",
        "_exchange",
        "_flows",
        "_head",
        "_kit",
        "_next_look_s",
        "_paused",
        "_pending",
        "_pool",
        "_relay",
        "_request",
        "_seen_s",
        "_settled",
        "_spoke",
        "_started_s",
        "_status",
        "_stream",
        "_streamed",
        "_transcoder",
        "aborted",
        "lease",
        "record",
        "rid",
    )

    _head: ResponseHead
    _settled: Settled

    def __init__(
        self,
        kit: AttemptKit,
        pool: PoolRuntime,
        lease: Lease,
        exchange: ExchangeRecord,
        record: AttemptRecord,
        stream: ClientStream,
        transcoder: Transcoder,
        *,
        request: tuple[bytes, bytes],
        rid: str,
        streamed: bool,
        client_streams: bool,
        spoke: Callable[[float], None] | None,
    ) -> None:
        """`request` is head and body for the engine, which may stream (`streamed`) for a client that does not.

        `rid` names the work to an engine that has to be told to stop; "" for others. `spoke` is called with the
        milliseconds to the first token of a stream when that has come.
        """
        self._kit = kit
        self._pool = pool
        self.lease = lease
        self._exchange = exchange
        self.record = record
        self._stream = stream
        self._transcoder = transcoder
        self._request = request
        self.rid = rid
        self._streamed = streamed
        self._client_streams = client_streams
        self._spoke = spoke
        self._connection: Upstream | None = None
        self._done = False
        self._collected: list[bytes] | None = None  # the body of an error or of an answer that is not streamed
        self._status = 0
        self._pending = b""
        self._flows = False  # this attempt has sent something semantic
        self._relay: Callable[[bytes, int], bytes] | None = None  # for chunks of a stream that flows untranslated
        self._paused = False
        self._started_s = self._seen_s = self._beaten_s = kit.watch.now_s
        self._next_look_s = 0.0
        self.aborted = False  # the engine was left while it may still have been working

    def start(self, connection: Upstream, settled: Settled, *, reused: bool) -> None:
        """Send the request. `settled` is called once, with the failure or None when the client has its answer.

        That may be before this returns. It is not called after `leave`.
        """
        self._connection = connection
        self._settled = settled
        self._kit.watch.add(self)
        self.record.connected = self._kit.clock.monotonic()
        head, body = self._request
        connection.send(head, body, self, reused=reused)

    def leave(self) -> None:
        """Give the engine's work up at once, and hear no more of it."""
        self._done = True
        self._kit.watch.discard(self)
        connection, self._connection = self._connection, None
        if connection is not None:
            self.aborted = True
            connection.abort()

    async def _let_client_drain(self) -> None:
        if not await flowing(self._stream, self._pool.config.timeouts.idle_s):
            self._finish(EngineFailure(Fault.CLIENT, "the client stopped reading", status=499))
            return
        self._paused = False
        self._seen_s = self._kit.watch.now_s
        if self._connection is not None:
            self._connection.resume()

    # --- Receiver ---

    def on_head(self, head: ResponseHead) -> None:
        """Status and headers of the engine."""
        self._status = self.record.status = head.status
        self._head = head
        self._seen_s = self._kit.watch.now_s
        if head.status != 200 or not self._streamed or head.content_type != "text/event-stream":
            self._collected = []

    def on_chunk(self, data: bytes, start: int) -> None:
        """A whole chunk: nearly all of a stream are events that may go on as they came."""
        passed = self._relay(data, start) if self._relay is not None else b""
        if not passed:
            self.on_data(data[start:-2])
            return
        self.record.received_bytes += len(data) - start - 2
        self._seen_s = self._kit.watch.now_s
        if self._stream.send_chunk(passed):
            self._hold_back()

    def on_data(self, data: bytes) -> None:
        """Some payload of the engine."""
        record = self.record
        if not record.received_bytes:
            record.first_byte = self._kit.clock.monotonic()
            self._next_look_s = 0.0  # another limit holds from now on
        record.received_bytes += len(data)
        self._seen_s = self._kit.watch.now_s
        if self._collected is not None:
            self._collect(data)
            return
        transcoder = self._transcoder
        out = transcoder.feed(data)
        if transcoder.failure is not None:
            self._finish(transcoder.failure)
        elif self._flows:
            if out and self._stream.send(out):
                self._hold_back()
        else:
            self._begin(out)
        if transcoder.abort_engine and not self._done:
            self._end_stream()
            self._finish(None)

    def _begin(self, out: bytes) -> None:
        """Collect what comes before the first semantic event, then commit."""
        self._pending += out
        if self._transcoder.started and self._client_streams:
            self._commit()

    def on_end(self) -> None:
        """The engine's body is complete."""
        if self._done:
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
        now_s = self._kit.clock.monotonic()
        if not self._exchange.first_token:
            self._exchange.first_token = now_s
        self.lease.first_token(now_s)

    def _commit(self) -> None:
        self._flows = True
        if isinstance(self._transcoder, PassThrough) and self._stream.chunked:
            self._relay = self._transcoder.relay
        self._first_token()
        if self._spoke is not None:
            self._spoke((self._exchange.first_token - self.record.started) * 1e3)
        pending, self._pending = self._pending, b""
        if not self._stream.committed:
            self._stream.begin(EVENT_STREAM, self._kit.date(), pending)
        elif pending and self._stream.send(pending):
            self._hold_back()

    def _end_stream(self) -> None:
        last = self._transcoder.eof()
        if self._transcoder.failure is not None:
            return
        if not self._client_streams:
            self._first_token()
            self._stream.whole(200, JSON, last, self._kit.date())
            return
        if not self._flows:
            self._pending += last
            last = b""
            self._commit()
        self._stream.end(last)

    def _hold_back(self) -> None:
        if not self._paused and self._connection is not None:
            self._paused = True
            self._connection.pause()
            self._kit.spawn(self._let_client_drain(), "slow client")

    def _collect(self, data: bytes) -> None:
        if self._collected is None:
            return
        if self._status == 200 and self.record.received_bytes > _ANSWER_LIMIT:
            self._finish(EngineFailure(Fault.PROTOCOL, "the engine's answer is too large"))
        elif self._status == 200 or self.record.received_bytes <= _ERROR_BODY_LIMIT:
            self._collected.append(data)

    def _whole(self, body: bytes) -> None:
        """A complete body: an answer that is not streamed, or an error."""
        self._connection = None
        if self._status >= 400:
            after = self._head.get(b"retry-after").decode("latin-1")
            self._finish(self._pool.kind.failure(self._status, self._head.content_type, body, after))
        elif self._status != 200:
            self._finish(EngineFailure(Fault.PROTOCOL, f"the engine answered with status {self._status}"))
        elif self._streamed and self._client_streams:
            failure = self._pool.kind.frame_failure(body)
            self._finish(failure or EngineFailure(Fault.PROTOCOL, "the engine did not stream"))
        else:
            self._answer(body)

    def _answer(self, body: bytes) -> None:
        transcoder = self._transcoder
        out = transcoder.feed(body) + transcoder.eof()
        if transcoder.failure is None:
            self._first_token()
            self._stream.whole(200, JSON, out, self._kit.date())
        self._finish(transcoder.failure)

    # --- time ---

    def look(self, now_s: float) -> None:
        """Give up what is overdue, and fill silence on a stream with heartbeats."""
        if now_s < self._next_look_s or self._done:
            return
        limits = self._pool.config.timeouts
        what = self._overdue(now_s, limits)
        if what and not self._paused:
            self._finish(EngineFailure(Fault.TIMEOUT, what))
            return
        quiet_s = limits.idle_s if self.record.first_byte else limits.first_byte_s
        self._next_look_s = min(self._seen_s + quiet_s, self._started_s + limits.total_s)
        if self._client_streams:
            if now_s - self._seen_s >= self._pool.heartbeat_s and not self._paused:
                self._beat(now_s)
            self._next_look_s = min(self._next_look_s, max(self._seen_s, self._beaten_s) + self._pool.heartbeat_s)

    def _overdue(self, now: float, limits: Timeouts) -> str:
        if now - self._started_s >= limits.total_s:
            return f"the answer took more than {limits.total_s:g} s"
        if not self.record.first_byte:
            late = now - self._started_s >= limits.first_byte_s
            return f"no first byte from the engine within {limits.first_byte_s:g} s" if late else ""
        return f"the engine was silent for {limits.idle_s:g} s" if now - self._seen_s >= limits.idle_s else ""

    def _beat(self, now_s: float) -> None:
        if now_s - self._beaten_s < self._pool.heartbeat_s:
            return
        self._beaten_s = now_s
        beat = self._transcoder.keepalive()
        if not beat:
            return
        if self._stream.committed:
            self._stream.send(beat)
        else:
            self._stream.begin(EVENT_STREAM, self._kit.date(), beat)

    # --- the end ---

    def _finish(self, failure: EngineFailure | None) -> None:
        if self._done:
            return
        self.leave()
        self._settled(failure)
