"""An exchange, as a straight line: who asks, what for, where it goes, attempts, and what is learned from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import msgspec
import structlog
from aiohttp import hdrs, web

from backends.contracts import Decision, EngineFailure, Fault, Random, Replica
from backends.fleet import Fleet, Member
from gateway.attempt import Attempt, AttemptKit
from gateway.auth import Identity
from gateway.bodies import read_body, ready_body
from gateway.book import ContractBook
from gateway.config.model import Model
from gateway.dialects.effort import StickyEfforts
from gateway.dialects.ids import Ids, maker
from gateway.dialects.registry import Dialect, EngineRequest
from gateway.edge import allowed_origin
from gateway.eligible import PoolFilter
from gateway.errors import Cause, GatewayError, from_failure
from gateway.exchange import Exchange, Keeper
from gateway.media.guard import MediaGuard
from gateway.runtime import PoolRuntime, Runtime
from gateway.stream import ClientStream
from gateway.telemetry.hub import Telemetry
from gateway.telemetry.record import AttemptRecord, ExchangeRecord
from policies.cost_model.model import CostModel
from policies.retry import RetryBudget, may_retry
from policies.routing.request import PoolShare, RouteRequest
from policies.routing.router import Router

log = structlog.get_logger("headrace.pipeline")

_BYTES_PER_TOKEN = 4
_NOBODY: Mapping[str, str] = {}
_NAME_LIMIT = 128  # characters of a client's name for something that a table remembers
Abort = Callable[[Member, str], None]


class Pipeline:
    """Serves exchanges. One per process; everything it needs is passed in."""

    __slots__ = (
        "_abort",
        "_book",
        "_clock",
        "_cost_model",
        "_efforts",
        "_filter",
        "_fleet",
        "_kit",
        "_media",
        "_new_id",
        "_retries",
        "_rng",
        "_router",
        "_telemetry",
        "draining",
        "runtime",
    )

    def __init__(
        self,
        runtime: Runtime,
        *,
        fleet: Fleet,
        router: Router,
        cost_model: CostModel,
        retries: RetryBudget,
        telemetry: Telemetry,
        book: ContractBook,
        pool_filter: PoolFilter,
        media: MediaGuard,
        kit: AttemptKit,
        rng: Random,
        abort: Abort,
    ) -> None:
        """`abort(member, rid)` tells an engine that does not notice a closed connection to stop."""
        self.runtime = runtime
        self._fleet = fleet
        self._router = router
        self._cost_model = cost_model
        self._retries = retries
        self._telemetry = telemetry
        self._book = book
        self._filter = pool_filter
        self._media = media
        self._kit = kit
        self._clock = kit.clock
        self._rng = rng
        self._new_id = maker(rng)
        self._efforts = StickyEfforts()
        self._abort = abort
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
        x = self._open(request, dialect, stream or ClientStream(request, close=self.draining))
        x.keeper = keeper
        try:
            try:
                await self._serve(x, request, body)
            except GatewayError as error:
                self._refuse(x, error)
            except Exception:
                log.exception("exchange failed", request_id=x.record.request_id)
                self._refuse(x, GatewayError(Cause.INTERNAL, "internal error"))
            if keeper is not None:
                await keeper.keep(x)
        except asyncio.CancelledError:
            x.record.status, x.record.error = Cause.CLIENT_GONE.status, "client_gone"
            raise
        finally:
            self._close(x)
        return x.stream.response()

    async def _serve(self, x: Exchange, request: web.BaseRequest, body: bytes | None) -> None:
        runtime, record, headers = x.runtime, x.record, request.headers
        x.identity = identity = runtime.auth.identify(headers.get(hdrs.AUTHORIZATION), headers.get("X-Api-Key"))
        record.tenant, record.key_id = identity.name, identity.key_id
        if len(self._telemetry.live) > runtime.config.limits.exchanges:
            raise GatewayError(Cause.OVERLOADED, "too many requests are in flight", retry_after_s=1.0)
        if body is None:
            body = ready_body(request, runtime.config.listen)
        if body is None:
            body = await read_body(request, runtime.config.listen)
        record.received_bytes = len(body)
        options = runtime.options(identity)
        x.asked = asked = x.dialect.decode_request(body, headers, options)
        record.model, record.stream = asked.model, asked.stream
        x.model = model = self._resolve(runtime, identity, asked.model)
        record.resolved = model.name
        x.ids = Ids(x.dialect.name, int(record.wall), record.request_id, self._new_id)
        if x.keeper is not None and await x.keeper.recall(x, options):
            return
        if session := asked.session or asked.cache_key:
            self._settle_effort(x, session)
        self._retries.exchange()
        x.eligible = self._filter.at_once(runtime, model.name, asked) or await self._filter.decide(
            runtime, model.name, asked, x.dialect
        )
        await self._attempts(x)

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

    def _decide(self, x: Exchange, pools: tuple[PoolShare, ...], tried: frozenset[str]) -> Decision:
        began = self._clock.monotonic()
        asked = x.asked
        request = RouteRequest(
            pools=pools,
            prompt_tokens=x.eligible.tokens or len(asked.body) // _BYTES_PER_TOKEN,
            output_tokens=min(asked.max_output or 256, 256),
            policy=x.runtime.policy(x.identity, x.model),
            tenant=x.identity.name,
            session=asked.session or asked.cache_key or "",
            home=x.home,
            exclude=tried,
            refused=x.eligible.refused or _NOBODY,
        )
        decision = self._router.decide(request, None, self._fleet.snapshot(), self._cost_model, self._rng)
        record = x.record
        if record.decision is None:  # the trace shows the first; later ones only leave out what was tried
            record.decision, record.deciding, record.decided = decision, began, self._clock.monotonic()
        return decision

    def _choose(self, x: Exchange, tried: frozenset[str]) -> Replica | None:
        """The best replica that was not tried; spare pools come when no other has one left."""
        for pools in (x.eligible.pools, x.eligible.spare):
            if pools and (order := self._decide(x, pools, tried).order):
                return order[0]
        return None

    async def _attempts(self, x: Exchange) -> None:
        """Try replicas, best first, until one answers; raises what the client is to be told otherwise."""
        tried: frozenset[str] = frozenset()
        failure: EngineFailure | None = None
        while (replica := self._choose(x, tried)) is not None:
            member = self._fleet.member(replica.id)
            if member is not None:
                failure = await self._attempt(x, replica, member)
                if failure is not None and failure.fault is Fault.STALE:
                    failure = await self._attempt(x, replica, member, fresh=True)
                if failure is None:
                    return
                why = "the answer had begun" if x.spoke else self._may_retry(x, failure)
                if why:
                    x.record.event("no further attempt", self._clock.monotonic(), {"reason": why})
                    break
            tried |= {replica.id}
        if failure is None:
            raise GatewayError(Cause.OVERLOADED, f"no replica of `{x.model.name}` is ready", retry_after_s=1.0)
        raise from_failure(failure)

    def _may_retry(self, x: Exchange, failure: EngineFailure) -> str:
        made = sum(attempt.fault is not Fault.STALE for attempt in x.record.attempts)
        return may_retry(failure, made, x.runtime.config.retry.attempts, self._retries)

    async def _attempt(
        self, x: Exchange, replica: Replica, member: Member, *, fresh: bool = False
    ) -> EngineFailure | None:
        """One attempt at one replica; returns how it failed, None when the client has its answer."""
        pool = x.runtime.pools[replica.pool]
        target = self._book.targets[replica.pool]
        sent = x.dialect.encode_engine_request(x.asked, target)
        if x.asked.traits.modalities:
            sent.body = await self._media.admit_body(sent.body, pool.config.media)
        record = x.record.attempt(replica, pool.config.engine, self._clock.monotonic())
        tokens = len(sent.body) // _BYTES_PER_TOKEN if sent.generates else 0
        lease = self._fleet.lease(member, tokens, tokens)
        attempt: Attempt | None = None
        rid = x.record.ids.hex(32) if pool.kind.spec.abort_path else ""
        try:
            connection = None if fresh else member.connections.take()
            reused = connection is not None
            if connection is None:
                connection = await member.connections.dial()
            record.connected = self._clock.monotonic()
            transcoder = x.dialect.transcoder(x.asked, sent, target, x.ids, x.runtime.seal(x.identity))
            x.transcoder = transcoder
            self._announce(x, replica, sent)
            attempt = Attempt(
                self._kit,
                pool,
                lease,
                x.record,
                record,
                x.stream,
                transcoder,
                streamed=sent.stream,
                client_streams=x.asked.stream,
            )
            head, body = _engine_request(x.record, record, pool, member, sent, rid)
            failure = await attempt.run(connection, head, body, reused=reused)
        except EngineFailure as broken:
            failure = broken
        finally:
            lease.release()
            record.ended = self._clock.monotonic()
            if rid and attempt is not None and attempt.aborted:
                self._abort(member, rid)
        if not sent.generates:
            x.record.first_token = 0.0
        self._learn(x, member, record, failure)
        return failure

    def _learn(self, x: Exchange, member: Member, record: AttemptRecord, failure: EngineFailure | None) -> None:
        if failure is None:
            self._fleet.succeeded(member)
            return
        record.fault, record.message = failure.fault, failure.message
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
        if x.identity.tenant.show_replica:
            headers["x-gateway-replica"] = replica.id
        x.stream.attempt_headers(headers)

    # --- opening and closing ---

    def _open(self, request: web.BaseRequest, dialect: Dialect, stream: ClientStream) -> Exchange:
        headers = request.headers
        request_id = f"req_{self._telemetry.ids.hex(24)}"
        record = self._telemetry.start(request_id, headers.get("traceparent"), headers.get("tracestate"))
        record.endpoint, record.dialect = request.path, dialect.name
        record.client = request.remote or ""
        line = request_id.encode()
        stream.header_lines(
            b"x-request-id: %b\r\nrequest-id: %b\r\nx-gateway-trace-id: %b\r\n" % (line, line, record.trace_id.encode())
        )
        if given := headers.get("X-Request-Id"):
            stream.header(b"x-client-request-id", given[:128])
        cors = self.runtime.config.listen.cors
        if cors.origins and (origin := allowed_origin(request, cors.origins)):
            stream.header(b"access-control-allow-origin", origin)
            stream.header(b"vary", "Origin")
        return Exchange(self.runtime, dialect, record, stream)

    def _refuse(self, x: Exchange, error: GatewayError) -> None:
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

    def _close(self, x: Exchange) -> None:
        record, transcoder = x.record, x.transcoder
        record.status = record.status or x.stream.status
        record.sent_bytes = x.stream.sent_bytes
        if transcoder is not None:
            record.finish_reason = transcoder.finish or ""
            if (usage := transcoder.usage) is not None:
                record.prompt_tokens, record.completion_tokens = usage.prompt, usage.completion
                record.cached_tokens, record.reasoning_tokens = usage.cached or 0, usage.reasoning
        self._telemetry.finish(record)


def _engine_request(
    exchange: ExchangeRecord, attempt: AttemptRecord, pool: PoolRuntime, member: Member, sent: EngineRequest, rid: str
) -> tuple[bytes, bytes]:
    """Head and body for the engine. Of the client's own headers only the trace goes on."""
    body = sent.body
    if rid:
        at = body.index(b"{") + 1
        body = b'%b"%b":"%b",%b' % (body[:at], pool.kind.spec.rid_field.encode(), rid.encode(), body[at:])
    state = f"tracestate: {exchange.tracestate}\r\n" if exchange.tracestate else ""
    head = (
        f"POST {member.connections.path}{sent.path} HTTP/1.1\r\nhost: {member.connections.host}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
        f"x-request-id: {exchange.request_id}-{len(exchange.attempts)}\r\n"
        f"traceparent: {exchange.traceparent(attempt)}\r\n{state}"
    )
    return head.encode("latin-1", "replace") + pool.authorization + b"\r\n", body
