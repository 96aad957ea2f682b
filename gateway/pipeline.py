"""An exchange, as a straight line: who asks, what for, where it goes, attempts, and what is learned from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import msgspec
import structlog
from aiohttp import web

from backends.contracts import Decision, EngineFailure, Fault, Random, Replica
from backends.fleet import Fleet, Member
from gateway.attempt import Attempt, AttemptKit
from gateway.auth import Identity
from gateway.bodies import read_body, ready_body
from gateway.book import ContractBook
from gateway.caller import Caller
from gateway.config.model import Model
from gateway.dialects.effort import StickyEfforts
from gateway.dialects.ids import Ids, maker
from gateway.dialects.model import Request
from gateway.dialects.registry import Dialect, EngineRequest
from gateway.errors import Cause, GatewayError, from_failure
from gateway.exchange import Exchange, Keeper
from gateway.kv.cache import KvCache
from gateway.learning import Learning
from gateway.media.guard import MediaGuard
from gateway.outgoing import engine_request
from gateway.pairing import Pairing
from gateway.placement import BYTES_PER_TOKEN, Placement
from gateway.runtime import Runtime
from gateway.stream import ClientStream, flowing
from gateway.telemetry.hub import Telemetry
from policies.retry import RetryBudget, may_retry

log = structlog.get_logger("headrace.pipeline")

_NAME_LIMIT = 128  # characters of a client's name for something that a table remembers
Abort = Callable[[Member, str], None]


class Pipeline:
    """Serves exchanges. One per process; everything it needs is passed in."""

    __slots__ = (
        "_abort",
        "_book",
        "_clock",
        "_efforts",
        "_fleet",
        "_kit",
        "_kv",
        "_learning",
        "_media",
        "_new_id",
        "_pairing",
        "_retries",
        "_telemetry",
        "draining",
        "placement",
        "runtime",
    )

    def __init__(
        self,
        runtime: Runtime,
        *,
        fleet: Fleet,
        placement: Placement,
        learning: Learning,
        retries: RetryBudget,
        telemetry: Telemetry,
        book: ContractBook,
        media: MediaGuard,
        kv: KvCache,
        kit: AttemptKit,
        rng: Random,
        abort: Abort,
    ) -> None:
        """`abort(member, rid)` tells an engine that does not notice a closed connection to stop."""
        self.runtime = runtime
        self._fleet = fleet
        self.placement = placement
        self._retries = retries
        self._telemetry = telemetry
        self._book = book
        self._media = media
        self._kv = kv
        self._learning = learning
        self._kit = kit
        self._clock = kit.clock
        self._new_id = maker(rng)
        self._efforts = StickyEfforts()
        self._abort = abort
        self._pairing = Pairing(fleet, kit, abort)
        self.draining = False

    async def exchange(
        self,
        request: web.BaseRequest,
        dialect: Dialect,
        *,
        keeper: Keeper | None = None,
        stream: ClientStream | None = None,
        body: bytes | None = None,
    ) -> web.StreamResponse:
        """Serve one request in `dialect`; every way out closes the record.

        The answer goes to `stream` instead of the request's connection, and `body` stands for the request's own.
        """
        caller = Caller(request.headers, request.path, request.remote or "", self.runtime)
        x = self.open(caller, dialect, stream or ClientStream.of(request, close=self.draining))
        x.keeper = keeper
        await self.through(x, self._serve(x, caller, request, body))
        # The next request is not read before this client has taken most of the answer.
        if not x.stream.flowing and not await flowing(x.stream, x.runtime.config.listen.request_timeout_s):
            x.stream.abort()
        return x.stream.response()

    async def through(self, x: Exchange, serving: Coroutine[Any, Any, None]) -> None:
        """See an opened exchange to its end."""
        try:
            try:
                await serving
            except GatewayError as error:
                self.refuse(x, error)
            except Exception:
                log.exception("exchange failed", request_id=x.record.request_id)
                self.refuse(x, GatewayError(Cause.INTERNAL, "internal error"))
            if x.keeper is not None:
                await x.keeper.keep(x)
        except asyncio.CancelledError:
            self.abandon(x)
            raise
        finally:
            self.close(x)

    async def _serve(self, x: Exchange, caller: Caller, request: web.BaseRequest, body: bytes | None) -> None:
        self.admit(x, caller)
        runtime = x.runtime
        if body is None:
            body = ready_body(request, runtime.config.listen)
        if body is None:
            body = await read_body(request, runtime.config.listen)
        options = runtime.options(x.identity)
        x.record.received_bytes = len(body)
        self.understand(x, x.dialect.decode_request(body, request.headers, options))
        if x.keeper is not None and await x.keeper.recall(x, options):
            return
        await self.dispatch(x)

    def admit(self, x: Exchange, caller: Caller) -> None:
        """Who asks, and whether there is room for another exchange. Raises GatewayError."""
        x.identity = identity = caller.identity()
        record = x.record
        record.tenant, record.key_id = identity.name, identity.key_id
        if len(self._telemetry.live) > x.runtime.config.limits.exchanges:
            raise GatewayError(Cause.OVERLOADED, "too many requests are in flight", retry_after_s=1.0)

    def understand(self, x: Exchange, asked: Request) -> None:
        """What is asked for. Raises GatewayError when there is no such model for this tenant."""
        record = x.record
        x.asked = asked
        record.model, record.stream = asked.model, asked.stream
        x.model = self._resolve(x.runtime, x.identity, asked.model)
        record.resolved = x.model.name
        x.policy = x.runtime.policy(x.identity, x.model)
        x.ids = Ids(x.dialect.name, int(record.wall), record.request_id, self._new_id)
        self._retries.exchange()

    async def dispatch(self, x: Exchange) -> None:
        """Where it may go, and there. Raises GatewayError."""
        asked = x.asked
        if asked.warnings:
            x.record.event(
                "left out of the prompt", self._clock.monotonic(), {"parts": "; ".join(asked.warnings)[:1024]}
            )
        if session := asked.session or asked.cache_key:
            self._settle_effort(x, session)
        if not self.placement.everyday(x):
            await self.placement.consider(x)
        await self.attempts(x)

    def _settle_effort(self, x: Exchange, session: str) -> None:
        """Keep the effort of a session whose client does not always name it."""
        asked = x.asked
        # A client's side requests under another model name are a session of their own.
        key = f"{x.identity.name} {asked.model[:_NAME_LIMIT]} {session[:_NAME_LIMIT]}"
        effort = self._efforts.settle(key, asked.reasoning.effort)
        if effort != asked.reasoning.effort:
            asked.reasoning.effort = effort
            asked.traits = msgspec.structs.replace(asked.traits, effort=effort)

    def _resolve(self, runtime: Runtime, identity: Identity, name: str) -> Model:
        model = runtime.models.resolve(name)
        if model is None:
            raise GatewayError(
                Cause.MODEL_NOT_FOUND, f"The model `{name[:128]}` does not exist or you may not use it.", param="model"
            )
        identity.require_model(name, model.name)
        return model

    async def attempts(self, x: Exchange, replica: Replica | None = None, failure: EngineFailure | None = None) -> None:
        """Try replicas, best first, until one answers; raises what the client is to be told otherwise.

        `replica` is the first choice when it was made already, and `failure` how an attempt at it ended.
        """
        tried: frozenset[str] = frozenset()
        last = failure
        replica = replica or self.placement.choose(x)
        while replica is not None:
            member = self._fleet.member(replica.id)
            if member is not None:
                last = failure or await self._attempt(x, replica, member)
                failure = None
                if last is not None and last.fault is Fault.STALE:
                    last = await self._attempt(x, replica, member, fresh=True)
                if last is None:
                    return
                why = "the answer had begun" if x.spoke else self._may_retry(x, last)
                if why:
                    x.record.event("no further attempt", self._clock.monotonic(), {"reason": why})
                    break
            tried |= {replica.id} if x.decision.prefill is None else {replica.id, x.decision.prefill.id}
            replica = self.placement.choose(x, tried)
        if last is None:
            raise GatewayError(Cause.OVERLOADED, f"no replica of `{x.model.name}` is ready", retry_after_s=1.0)
        raise from_failure(last)

    def _may_retry(self, x: Exchange, failure: EngineFailure) -> str:
        made = sum(attempt.fault is not Fault.STALE for attempt in x.record.attempts)
        return may_retry(failure, made, x.runtime.config.retry.attempts, self._retries)

    async def _attempt(
        self, x: Exchange, replica: Replica, member: Member, *, fresh: bool = False
    ) -> EngineFailure | None:
        """One attempt at one replica; returns how it failed, None when the client has its answer."""
        sent = self.engine_request(x, replica)
        self._pairing.fit(x, replica, sent)
        if x.asked.traits.modalities:
            policy = x.runtime.pools[replica.pool].config.media
            sent.body = await self._media.admit_body(sent.body, policy, x.asked.dialect)
        attempt = self.prepare(x, replica, member, sent)
        pair = self._pairing.join(x, attempt, sent, fresh=fresh)
        settled: asyncio.Future[EngineFailure | None] = self._kit.loop.create_future()
        try:
            connection = pair if pair is not None or fresh else member.connections.take()
            reused = connection is not None
            attempt.start(connection or await member.connections.dial(), partial(_settle, settled), reused=reused)
            failure = await settled
        except EngineFailure as broken:
            failure = broken
        except asyncio.CancelledError:
            attempt.leave()
            raise
        finally:
            self.release(attempt)
        if pair is not None:
            pair.close(answered=failure is None)
        if not sent.generates:
            x.record.first_token = 0.0
        self.learn(x, attempt, failure)
        return failure

    def engine_request(self, x: Exchange, replica: Replica) -> EngineRequest:
        """What the engine is asked. Raises GatewayError when this pool cannot be asked for it."""
        return x.dialect.encode_engine_request(x.asked, self._book.targets[replica.pool])

    def prepare(self, x: Exchange, replica: Replica, member: Member, sent: EngineRequest) -> Attempt:
        """An attempt that holds its lease, ready to be started. Whatever comes of it: `release`."""
        pool = x.runtime.pools[replica.pool]
        record = x.record.attempt(replica, pool.config.engine, self._clock.monotonic())
        tokens = len(sent.body) // BYTES_PER_TOKEN if sent.generates else 0
        rid = x.record.ids.hex(32) if pool.kind.spec.abort_path else ""
        target = self._book.targets[replica.pool]
        x.transcoder = x.dialect.transcoder(x.asked, sent, target, x.ids, x.runtime.seal(x.identity))
        self._announce(x, replica, sent)
        decision = x.decision
        request = engine_request(x.record, record, pool, member, sent, rid=rid, decision=decision)
        x.promised = self._kv.sent(x.plan, decision.prefill or replica) if x.plan is not None else None
        return Attempt(
            self._kit,
            pool,
            self._fleet.lease(member, _to_prefill(decision, tokens), tokens, streams=sent.stream),
            x.record,
            record,
            x.stream,
            x.transcoder,
            request=request,
            rid=rid,
            streamed=sent.stream,
            client_streams=x.asked.stream,
            spoke=self._learning.listener(decision, replica),
        )

    def release(self, attempt: Attempt) -> None:
        """An attempt is over, however it ended."""
        attempt.lease.release()
        attempt.record.ended = self._clock.monotonic()
        if attempt.rid and attempt.aborted:
            self._abort(attempt.lease.member, attempt.rid)

    def learn(self, x: Exchange, attempt: Attempt, failure: EngineFailure | None) -> None:
        """What an attempt says of its replica, and whether another one may follow it."""
        member = self._pairing.culprit(attempt)
        if failure is None:
            self._fleet.succeeded(member)
            if x.plan is not None:
                self._learning.answered(x, attempt.record, self._fleet.snapshot())
            return
        attempt.record.fault, attempt.record.message = failure.fault, failure.message
        x.spoke = x.stream.committed and x.transcoder is not None and x.transcoder.started
        self._fleet.failed(member, failure)

    def _announce(self, x: Exchange, replica: Replica, sent: EngineRequest) -> None:
        """Headers that depend on the attempt. A retry replaces those of the attempt before."""
        changes = x.eligible.adaptations.get(replica.pool, ()) if x.eligible.adaptations else ()
        if not sent.headers and not sent.adapted and not changes and not x.identity.tenant.show_replica:
            x.stream.attempt_lines(x.runtime.pools[replica.pool].announcement)
            return
        headers = {"x-gateway-pool": replica.pool, **sent.headers}
        told = (*sent.adapted, *map(str, changes))
        if told:
            headers["x-gateway-adapted"] = ", ".join(told)
            x.record.adaptations = told
            now_s = self._clock.monotonic()
            for change in changes:
                why = {"headrace.pool": replica.pool, "headrace.adaptation.reason": change.reason}
                x.record.event("adapted", now_s, {"headrace.adaptation": str(change), **why})
        if x.identity.tenant.show_replica:
            headers["x-gateway-replica"] = replica.id
        x.stream.attempt_headers(headers)

    # --- opening and closing ---

    def open(self, caller: Caller, dialect: Dialect, stream: ClientStream) -> Exchange:
        """Begin an exchange; whoever does closes it."""
        telemetry = self._telemetry
        request_id = f"req_{telemetry.ids.hex(24)}"
        record = telemetry.begin(request_id, caller.parent)
        record.endpoint, record.dialect, record.client = caller.endpoint, dialect.name, caller.address
        line = request_id.encode()
        stream.header_lines(
            b"x-request-id: %b\r\nrequest-id: %b\r\nx-gateway-trace-id: %b\r\n%b"
            % (line, line, record.trace_id.encode(), caller.answer_lines)
        )
        return Exchange(caller.runtime, dialect, record, stream)

    def refuse(self, x: Exchange, error: GatewayError) -> None:
        """Tell the client what went wrong, in a stream that has begun or as the whole answer."""
        record, stream = x.record, x.stream
        record.error = error.code or error.cause.value[2] or error.cause.name.lower()
        if stream.gone or stream.ended:
            return
        if stream.committed:
            if x.transcoder is not None:
                stream.end(x.transcoder.fail(error))
            return
        status, headers, body = x.dialect.encode_error(error, record.request_id)
        content_type = headers.pop("content-type", "application/json").encode()
        for name, value in headers.items():
            if name not in ("x-request-id", "request-id"):
                stream.header(name.encode(), value)
        stream.whole(status, content_type, body, self._kit.date())

    def abandon(self, x: Exchange) -> None:
        """The client went away: some do as soon as they have the last event, before the engine ends its body."""
        if x.transcoder is None or not (x.stream.committed and x.transcoder.finished):
            x.record.status, x.record.error = Cause.CLIENT_GONE.status, "client_gone"
        self.close(x)

    def close(self, x: Exchange) -> None:
        """The end of an exchange: its record is complete."""
        record, transcoder = x.record, x.transcoder
        record.status = record.status or x.stream.status
        record.sent_bytes = x.stream.sent_bytes
        if transcoder is not None:
            record.finish_reason = transcoder.finish or ""
            if (usage := transcoder.usage) is not None:
                record.prompt_tokens, record.completion_tokens = usage.prompt, usage.completion
                record.cached_tokens, record.reasoning_tokens = usage.cached or 0, usage.reasoning
        self._telemetry.finish(record)


def _to_prefill(decision: Decision, tokens: int) -> int:
    """Tokens that the first replica of a decision has to compute, of a prompt of so many."""
    if decision.prefill is not None:
        return 0
    return decision.prefill_tokens if decision.expected else tokens


def _settle(settled: asyncio.Future[EngineFailure | None], failure: EngineFailure | None) -> None:
    """Tell the exchange how its attempt ended, unless it was cancelled a moment before and does not know yet."""
    if not settled.done():
        settled.set_result(failure)
