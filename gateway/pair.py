"""One try at a prefill/decode pair, which an attempt drives as if it were one connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from backends.client import EngineConnection, Receiver
from backends.contracts import Clock, EngineFailure, Fault
from backends.engines.handover import Handover, Link
from backends.fleet import Lease, Member
from backends.http1 import ResponseHead
from gateway.attempt import Spawn
from gateway.runtime import PoolRuntime
from gateway.telemetry.record import AttemptRecord

_ANSWER_LIMIT = 16 * 1024 * 1024  # of a prefill server: one token, and where the blocks lie
Head = Callable[[int], bytes]  # a request's head for a body of so many bytes
Tell = Callable[[Member], None]  # ends the request inside an engine that has to be told


class Half:
    """The prefill side: one request whose answer no client sees."""

    __slots__ = ("_clock", "_head", "_lease", "_pool", "_tell", "member", "record")

    def __init__(self, pool: PoolRuntime, lease: Lease, record: AttemptRecord, head: Head, tell: Tell, clock: Clock):
        self.member = lease.member
        self.record = record
        self._pool = pool
        self._lease = lease
        self._head = head
        self._tell = tell
        self._clock = clock

    async def ask(self, body: bytes) -> bytes:
        """The whole answer. Raises EngineFailure, which the record then holds too."""
        limit_s = self._pool.config.timeouts.first_byte_s
        try:
            async with asyncio.timeout(limit_s):
                answer = await self._asked(body)
            self._lease.first_token(self._clock.monotonic())
            return answer
        except EngineFailure as failure:
            self.failed(failure)
            raise
        except TimeoutError:
            self._tell(self.member)
            late = EngineFailure(Fault.TIMEOUT, f"no answer from the prefill engine within {limit_s:g} s")
            self.failed(late)
            raise late from None
        except asyncio.CancelledError:
            self._tell(self.member)
            raise
        finally:
            self.end()

    def failed(self, failure: EngineFailure) -> None:
        """The pair failed on this side."""
        self.record.fault, self.record.message = failure.fault, failure.message

    def end(self) -> None:
        """Nothing more is expected of this side. May be repeated."""
        self._lease.release()
        self.record.ended = self.record.ended or self._clock.monotonic()

    async def _asked(self, body: bytes) -> bytes:
        connections = self.member.connections
        connection = connections.take()
        if connection is not None:
            try:
                return await self._once(connection, body, reused=True)
            except EngineFailure as failure:
                if failure.fault is not Fault.STALE:
                    raise
        return await self._once(await connections.dial(), body, reused=False)

    async def _once(self, connection: EngineConnection, body: bytes, *, reused: bool) -> bytes:
        receiver = _Whole(self.record, self._clock)
        self.record.connected = self._clock.monotonic()
        connection.send(self._head(len(body)), body, receiver, reused=reused)
        try:
            head, answer = await receiver.whole
        finally:
            if not receiver.ended:
                connection.abort()
        kind = self._pool.kind
        if head.status >= 400:
            after = head.get(b"retry-after").decode("latin-1")
            raise kind.failure(head.status, head.content_type, answer, after)
        failure = kind.frame_failure(answer)
        if failure is not None:
            raise failure
        return answer


class _Whole:
    """Receives an answer that is not streamed."""

    __slots__ = ("_clock", "_head", "_parts", "_record", "ended", "whole")

    _head: ResponseHead

    def __init__(self, record: AttemptRecord, clock: Clock) -> None:
        self._record = record
        self._clock = clock
        self._parts: list[bytes] = []
        self.ended = False  # the connection needs no abort
        self.whole: asyncio.Future[tuple[ResponseHead, bytes]] = asyncio.get_running_loop().create_future()

    def on_head(self, head: ResponseHead) -> None:
        self._head = head
        self._record.status = head.status

    def on_chunk(self, data: bytes, start: int) -> None:
        self.on_data(data[start:-2])

    def on_data(self, data: bytes) -> None:
        record = self._record
        record.first_byte = record.first_byte or self._clock.monotonic()
        record.received_bytes += len(data)
        self._parts.append(data)
        if record.received_bytes > _ANSWER_LIMIT and not self.whole.done():
            self.whole.set_exception(EngineFailure(Fault.PROTOCOL, "the prefill engine's answer is too large"))

    def on_end(self) -> None:
        self.ended = True
        if not self.whole.done():
            self.whole.set_result((self._head, b"".join(self._parts)))

    def on_failure(self, failure: EngineFailure) -> None:
        self.ended = True
        if not self.whole.done():
            self.whole.set_exception(failure)


class Pair:
    """Sends both requests in the kind's order and passes on what the decode side answers.

    Whatever goes wrong on either side before the answer has begun ends both, and the attempt hears of it once.
    """

    __slots__ = ("_begun", "_connection", "_decode", "_fresh", "_handover", "_head", "_link", "_receiver", "_spawn",
                 "_tasks", "_tell", "half")  # fmt: skip

    def __init__(
        self,
        handover: Handover,
        link: Link,
        half: Half,
        decode: Member,
        head: Head,
        tell: Tell,
        spawn: Spawn,
        *,
        fresh: bool,
    ) -> None:
        """`head` is that of the decode side's request. `fresh`: over a new connection."""
        self.half = half
        self._handover = handover
        self._link = link
        self._decode = decode
        self._head = head
        self._tell = tell
        self._spawn = spawn
        self._fresh = fresh
        self._receiver: Receiver | None = None
        self._connection: EngineConnection | None = None  # to the decode side, while it answers
        self._begun = False
        self._tasks: list[asyncio.Task[None]] = []

    def close(self, *, answered: bool) -> None:
        """The attempt is over. A prefill server that still speaks after a good answer is heard to its end."""
        if not answered:
            self.abort()

    # --- what an attempt does with a connection ---

    def send(self, head: bytes, body: bytes, receiver: Receiver, *, reused: bool) -> None:  # noqa: ARG002
        """Begin. `body` is the request before it is divided; `head` says its length and so is of no use."""
        self._receiver = receiver
        if self._handover.together:
            self._start(self._prefilled(body), "prefill")
            self._start(self._asked(self._handover.decode(body, self._link, b"")), "decode")
        else:
            self._start(self._one_then_the_other(body), "prefill and decode")

    def pause(self) -> None:
        """Stop reading: the client is slower than the engine."""
        if self._connection is not None:
            self._connection.pause()

    def resume(self) -> None:
        """Read again after `pause`."""
        if self._connection is not None:
            self._connection.resume()

    def abort(self) -> None:
        """Give both sides up."""
        self._receiver = None
        for task in self._tasks:
            task.cancel()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self.half.end()

    # --- the decode side's answer ---

    def on_head(self, head: ResponseHead) -> None:
        """Pass on."""
        if self._receiver is not None:
            self._receiver.on_head(head)

    def on_chunk(self, data: bytes, start: int) -> None:
        """Pass on."""
        self._begun = True
        if self._receiver is not None:
            self._receiver.on_chunk(data, start)

    def on_data(self, data: bytes) -> None:
        """Pass on."""
        self._begun = True
        if self._receiver is not None:
            self._receiver.on_data(data)

    def on_end(self) -> None:
        """Pass on."""
        self._connection = None
        if self._receiver is not None:
            self._receiver.on_end()

    def on_failure(self, failure: EngineFailure) -> None:
        """The decode side's connection broke."""
        self._connection = None
        self._fail(failure)

    # --- inside ---

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._tasks.append(self._spawn(work, name))

    async def _one_then_the_other(self, body: bytes) -> None:
        try:
            answer = await self.half.ask(self._handover.prefill(body, self._link))
            body = self._handed(body, answer)
        except EngineFailure as failure:
            self._fail(failure)
            return
        await self._asked(body)

    def _handed(self, body: bytes, answer: bytes) -> bytes:
        try:
            return self._handover.decode(body, self._link, answer)
        except EngineFailure as failure:
            self.half.failed(failure)
            raise

    async def _prefilled(self, body: bytes) -> None:
        try:
            await self.half.ask(self._handover.prefill(body, self._link))
        except EngineFailure as failure:
            if not self._begun:  # else the KV has arrived, and what prefill says no longer matters
                self._fail(failure)

    async def _asked(self, body: bytes) -> None:
        connections = self._decode.connections
        connection = None if self._fresh else connections.take()
        reused = connection is not None
        try:
            self._connection = connection = connection or await connections.dial()
        except EngineFailure as failure:
            self._fail(failure)
            return
        connection.send(self._head(len(body)), body, self, reused=reused)

    def _fail(self, failure: EngineFailure) -> None:
        receiver = self._receiver
        if self._connection is not None:
            self._tell(self._decode)
        self.abort()
        if receiver is not None:
            receiver.on_failure(failure)
