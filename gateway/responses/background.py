"""Responses that run without their client, in the process that took them."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import structlog
from aiohttp import web

from backends.contracts import Clock
from backends.supervisor import Supervisor
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions
from gateway.dialects.responses_resource import resource
from gateway.dialects.sse import named
from gateway.errors import Cause, GatewayError
from gateway.exchange import Exchange
from gateway.pipeline import Pipeline
from gateway.responses.library import Library
from gateway.responses.record import FINISHED, Record
from gateway.responses.replay import Replay
from gateway.responses.streams import DetachedStream, HeldStream
from gateway.responses.turn import Turn, unavailable
from gateway.state.base import StateStore, StateUnavailable
from gateway.stream import DateLine

log = structlog.get_logger("headrace.responses")

_TICK_S = 0.2  # between two looks: what came since is stored, and whether somebody wants it to stop
_LIFE_S = 15.0  # a run that has not said for so long that it lives is lost
_RENEW_S = 5.0
_PATIENCE_S = 30.0  # for a store that does not answer when a run has ended
_STOP_S = 5.0  # for another gateway to stop what it runs
_TOO_LARGE = "the response is too large to be stored"
_JSON = b"application/json"


class _Error(msgspec.Struct):
    message: str = "the response could not be made"


class _Envelope(msgspec.Struct):
    error: _Error = msgspec.field(default_factory=_Error)


_envelope = msgspec.json.Decoder(_Envelope)


class Run(Turn):
    """The exchange of a background response: a turn whose id the client has already."""

    def __init__(self, store: StateStore, library: Library, asked: Request, ids: Ids, record: Record) -> None:
        super().__init__(store)
        self.library = library
        self.record = record
        self.cancelled = False
        self.task: asyncio.Task[None] | None = None
        self.unstored: list[bytes] = []  # events that wait for the store
        self.cut = False  # one of them can never be stored: the stream ends before it
        self._asked = asked  # as the client asked
        self._ids = ids

    async def recall(self, x: Exchange, options: DecodeOptions) -> bool:
        """See `Keeper.recall`."""
        x.ids = self._ids
        return await super().recall(x, options)

    async def keep(self, x: Exchange) -> None:
        """Storing is left to whoever tends the run."""
        if x.record.attempts:
            self.record.home = x.record.attempts[-1].replica.id

    def body(self) -> bytes:
        """The client's request as a stream, whether it streams or not: an answer in the making can be cancelled."""
        return msgspec.json.encode(self._asked.raw | {"stream": msgspec.Raw(b"true")})

    def cancel(self) -> None:
        """Stop the engine and the exchange."""
        self.cancelled = True
        if self.task is not None:
            self.task.cancel()

    def outcome(self, refusal: bytes) -> tuple[dict[str, Any], bytes]:
        """The final resource, and the event that tells it where the exchange had none."""
        if self.resource is not None:
            return self.resource, b""
        if self.cancelled:
            return resource(self._asked, self._ids, "cancelled", []), b""
        return self.failed(_message(refusal))

    def failed(self, message: str) -> tuple[dict[str, Any], bytes]:
        """A failed resource and its event."""
        error = {"code": "server_error", "message": message}
        made = resource(self._asked, self._ids, "failed", [], error=error)
        event = {"type": "response.failed", "sequence_number": self._ids.sequence, "response": made}
        return made, named(b"response.failed", msgspec.json.encode(event))

    def cut_short(self) -> None:
        """The next event is too large to be stored. A stream with a hole would be taken for whole: it fails instead."""
        log.warning("events of a background response are too large to be stored", response=self.record.id)
        self.unstored[:] = [] if self.cut else [self.failed(_TOO_LARGE)[1]]
        self.cut = True


def _message(refusal: bytes) -> str:
    try:
        return _envelope.decode(refusal).error.message
    except msgspec.MsgspecError:
        return _Error().message


async def _announce(library: Library, record: Record) -> None:
    """Store a response that is about to run. Raises GatewayError."""
    try:
        await library.still_running(record.id, _LIFE_S)
        if not await library.save(record):
            raise GatewayError(Cause.TOO_LARGE, "the request is too large to be stored", param="input")
    except StateUnavailable:
        raise unavailable() from None


class Runs:
    """The background responses of this process. Every one has a record in the store from its beginning."""

    def __init__(self, pipeline: Pipeline, store: StateStore, supervisor: Supervisor, clock: Clock) -> None:
        self._pipeline = pipeline
        self._store = store
        self._supervisor = supervisor
        self._clock = clock
        self._dates = DateLine()
        self._running: dict[str, Run] = {}
        self.replay = Replay(self.date, self.current)

    def __len__(self) -> int:
        return len(self._running)

    def date(self) -> bytes:
        """The `date` header now."""
        return self._dates.at(self._clock.time())

    def turn(self, request: web.BaseRequest, stream: HeldStream) -> Turn:
        """The turn of a client's POST, which may turn out to ask for a run in the background."""
        return _Front(self, request, self._store, stream)

    async def start(self, x: Exchange, request: web.BaseRequest, record: Record) -> None:
        """Begin to run what `x` asked. Raises GatewayError when it cannot be stored, or too many run."""
        asked = x.asked
        if len(self._running) >= x.runtime.config.state.background_responses:
            raise GatewayError(Cause.OVERLOADED, "too many responses run in the background", retry_after_s=5.0)
        library = Library(self._store, x.runtime.config.state, x.identity.name)
        run = self._running[record.id] = Run(self._store, library, asked, x.ids, record)  # counted before any wait
        try:
            await _announce(library, record)
        except BaseException:
            del self._running[record.id]
            raise
        self._supervisor.spawn(self._tend(run, request), f"background {record.id}")

    async def current(self, library: Library, record: Record) -> Record:
        """A record as it is now: one whose gateway is gone has failed."""
        if record.status in FINISHED or await library.is_running(record.id):
            return record
        error = {"code": "server_error", "message": "the gateway that ran this response is gone"}
        record.response |= {"status": "failed", "error": error}
        await library.save(record)
        return record

    async def cancel(self, library: Library, record: Record) -> Record:
        """Stop a background response, wherever it runs; returns its record after that."""
        if record.status in FINISHED:
            return record
        run = self._running.get(record.id)
        if run is not None:
            run.cancel()
        else:
            await library.ask_to_stop(record.id, _LIFE_S)
        until = self._clock.monotonic() + _STOP_S
        while record.status not in FINISHED and self._clock.monotonic() < until:
            await asyncio.sleep(_TICK_S / 4)
            record = await self.current(library, await library.find(record.id) or record)
        return record

    # --- one run ---

    async def _tend(self, run: Run, request: web.BaseRequest) -> None:
        """Let the exchange run and store what comes of it."""
        stream = DetachedStream()
        run.task = self._supervisor.spawn(self._exchange(run, request, stream), f"exchange of {run.record.id}")
        try:
            await self._watch(run, run.task, stream)
            response, event = run.outcome(stream.refusal)
            await self._finish(run, stream, response, event, _PATIENCE_S)
        except asyncio.CancelledError:
            run.task.cancel()
            await self._finish(run, stream, *run.failed("the gateway was stopped"), 0.0)
            raise
        finally:
            del self._running[run.record.id]

    async def _exchange(self, run: Run, request: web.BaseRequest, stream: DetachedStream) -> None:
        await self._pipeline.exchange(request, run, keeper=run, stream=stream, body=run.body())

    async def _watch(self, run: Run, task: asyncio.Task[None], stream: DetachedStream) -> None:
        renewed = self._clock.monotonic()
        while not task.done():
            await asyncio.wait({task}, timeout=_TICK_S)
            try:
                await self._store_events(run, stream)
                if self._clock.monotonic() - renewed > _RENEW_S:
                    renewed = self._clock.monotonic()
                    await run.library.still_running(run.record.id, _LIFE_S)
                if not run.cancelled and await run.library.asked_to_stop(run.record.id):
                    run.cancel()
            except StateUnavailable:
                log.warning("a background response waits for the store", response=run.record.id)

    async def _store_events(self, run: Run, stream: DetachedStream, last: bytes = b"") -> None:
        """Store what the client would have got since the last call, when it is to be replayed."""
        record = run.record
        if record.status == "queued" and stream.committed:
            record.response["status"] = "in_progress"
            await run.library.save(record)
        events = [block + b"\n\n" for block in stream.take()] + ([last] if last else [])
        if record.streamed and not run.cut:
            run.unstored += events
        await self._store_batches(run)

    async def _store_batches(self, run: Run) -> None:
        """Store what waits as one batch, or in as many as it takes for each to be small enough."""
        record, size = run.record, len(run.unstored)
        while run.unstored:
            if await run.library.add_events(record.id, record.batches, b"".join(run.unstored[:size])):
                record.batches += 1
                del run.unstored[:size]
            elif size > 1:
                size //= 2
            else:
                run.cut_short()

    async def _finish(
        self, run: Run, stream: DetachedStream, response: dict[str, Any], event: bytes, patience_s: float
    ) -> None:
        until = self._clock.monotonic() + patience_s
        while True:
            try:
                await self._store_events(run, stream, event)
                run.record.response = run.failed(_TOO_LARGE)[0] if run.cut else response
                if not await run.library.save(run.record):
                    run.record.response, _ = run.failed(_TOO_LARGE)
                    await run.library.save(run.record)
            except StateUnavailable:
                if self._clock.monotonic() >= until:
                    log.error("a background response could not be stored", response=run.record.id)
                    return
                event = b""  # it waits in `unstored`
                await asyncio.sleep(_TICK_S)
            else:
                return


class _Front(Turn):
    """The turn of a POST: answers at once when the response is to run in the background."""

    def __init__(self, runs: Runs, request: web.BaseRequest, store: StateStore, stream: HeldStream) -> None:
        super().__init__(store, stream)
        self._runs = runs
        self._request = request

    async def recall(self, x: Exchange, options: DecodeOptions) -> bool:
        """See `Keeper.recall`."""
        await super().recall(x, options)
        if not x.asked.background:
            return False
        record = self._record(x, resource(x.asked, x.ids, "queued", []))
        record.streamed = x.asked.stream
        await self._runs.start(x, self._request, record)
        if x.asked.stream:
            await self._runs.replay.follow(x.stream, self._library(x), record, -1)
        else:
            x.stream.whole(200, _JSON, msgspec.json.encode(record.response), self._runs.date())
        return True
