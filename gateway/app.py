"""The composition root: everything one process holds, built from a configuration and started in order."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version

import aiohttp
import structlog
from aiohttp import web

from backends.contracts import Clock, Random, ReplicaState
from backends.engines import builtin
from backends.fleet import Fleet, Member
from backends.health import HealthProber
from backends.supervisor import Supervisor
from gateway.admin import Admin
from gateway.attempt import AttemptKit
from gateway.book import ContractBook
from gateway.config.diff import Change
from gateway.config.model import Config, Cors
from gateway.counting import CounterFeed
from gateway.dialects.counting import count_messages
from gateway.dialects.plain import Plain
from gateway.dialects.registry import Dialect, standard
from gateway.dialects.seal import Keys
from gateway.edge import EdgeServer, Route, Routes
from gateway.eligible import PoolFilter
from gateway.errors import GatewayError
from gateway.kv.cache import KvCache
from gateway.lane import Lane
from gateway.learning import Learning
from gateway.listing import Listing
from gateway.media.guard import build as build_media_guard
from gateway.pipeline import Pipeline
from gateway.placement import Placement
from gateway.responses.routes import ResponsesApi
from gateway.runtime import Runtime, pool_facts
from gateway.state.choose import open_store
from gateway.telemetry.cost import CostMetrics
from gateway.telemetry.hub import Telemetry
from gateway.telemetry.ids import IdSource
from gateway.telemetry.kv import KvMetrics
from gateway.telemetry.lines import LineWriter
from gateway.vault import Vaulted
from gateway.watch import Watch
from policies.cost_model.costs import Costs
from policies.inflight import PeerTable
from policies.retry import RetryBudget
from policies.routing.builtin import builtin_policies
from policies.routing.router import Router

log = structlog.get_logger("headrace.app")

VLLM_ONLY = (
    "/inference/v1/generate",
    "/generative_scoring",
    "/v1/chat/completions/render",
    "/v1/completions/render",
)
_ABORT_S = 2.0


class App:
    """One gateway process. `running()` starts what works in the background and ends it."""

    def __init__(self, config: Config, *, clock: Clock, rng: Random, lines: LineWriter) -> None:
        self._clock = clock
        self._kinds = builtin()
        own = secrets.token_hex(4)
        self._keys = Keys(own, {own: secrets.token_bytes(32)})
        self.fleet = Fleet(self._kinds, clock)
        self.supervisor = Supervisor()
        self._watch = Watch()
        self.store = open_store(config.state, clock)
        self.telemetry = Telemetry(
            config.telemetry,
            clock=clock,
            ids=IdSource(),
            snapshot=self.fleet.snapshot,
            lines=lines,
            version=version("headrace"),
        )
        self.book = ContractBook(self._kinds, self.fleet, clock, self.telemetry.contradicted)
        self._filter = PoolFilter(self.book, self.fleet, clock)
        self._media = build_media_guard()
        self.peers = PeerTable()
        self._costs = Costs()
        self._counting = CounterFeed(self._costs, lambda pool: self.book.contracts[pool].terms, clock)
        self.kv = KvCache(config, self.fleet, clock)
        self._router = Router(builtin_policies(), clock, peers=self.peers)
        self._load(config)
        self.kv.apply(config)
        self.telemetry.export(KvMetrics(self.kv.known), CostMetrics(self._costs.scores))
        runtime = self._runtime(config)
        self.book.apply(config, runtime.bases())
        learning = Learning(self._costs, self.kv, clock)
        self.pipeline = Pipeline(
            runtime,
            fleet=self.fleet,
            placement=Placement(
                fleet=self.fleet,
                router=self._router,
                costs=self._costs,
                affinity=learning.affinity,
                book=self.book,
                pool_filter=self._filter,
                kv=self.kv,
                clock=clock,
                rng=rng,
            ),
            learning=learning,
            retries=RetryBudget(clock, config.retry.budget, config.retry.budget_min),
            telemetry=self.telemetry,
            book=self.book,
            media=self._media,
            kv=self.kv,
            kit=AttemptKit(clock, self._watch, self.supervisor.spawn),
            rng=rng,
            abort=self._abort,
        )
        self._session: aiohttp.ClientSession | None = None
        self._prober: HealthProber | None = None
        self._surveyed = False  # every replica of the first configuration was looked at
        self.dialects = standard()
        self.edge = EdgeServer(
            self._routes(),
            self._write_error,
            cors=self._cors,
            head_timeout_s=config.listen.request_timeout_s,
            body_cap=config.listen.body_limit_bytes,
        )

    @property
    def config(self) -> Config:
        """The configuration in use."""
        return self.pipeline.runtime.config

    def _runtime(self, config: Config) -> Runtime:
        return Runtime(config, self._kinds, self._keys, secrets.token_bytes)

    # --- life ---

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Probing and export run inside this context."""
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._stop_telemetry)
            self.telemetry.open()
            stack.push_async_callback(self.store.aclose)
            self._session = await stack.enter_async_context(
                aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False)
            )
            self._tell_peers(stack)
            stack.push_async_callback(self.supervisor.aclose)
            stack.callback(self._close_connections)
            self.supervisor.spawn(self._watch.run(), "time limits")
            self.supervisor.spawn(self.telemetry.run(), "telemetry")
            stack.push_async_callback(self._media.close)
            self._filter.session = self._session
            self.book.watch(self._session, self.supervisor)
            self.kv.start(self._session, self.supervisor)
            self._prober = HealthProber(
                self.fleet, self._session, self.supervisor, self._emptied, counters=self._counting
            )
            self._prober.watch(*self.fleet.apply(self.pipeline.runtime.specs()))
            yield

    def _tell_peers(self, stack: AsyncExitStack) -> None:
        """Exchange what is in flight with other gateways, where there is a place to do so."""
        url = self.config.state.url
        if url.startswith("memory:"):
            return
        from gateway.state.inflight import InflightExchange  # with redis, which most gateways need not load

        exchange = InflightExchange(url, secrets.token_hex(8), self.fleet.snapshot, self.peers, self._clock)
        stack.push_async_callback(exchange.aclose)
        self.supervisor.spawn(exchange.publish(), "in-flight totals out")
        self.supervisor.spawn(exchange.listen(), "in-flight totals in")

    async def _stop_telemetry(self) -> None:
        await asyncio.to_thread(self.telemetry.close)

    def _close_connections(self) -> None:
        for member in self.fleet:
            member.connections.abort()

    async def apply(self, config: Config, changes: Sequence[Change]) -> None:  # noqa: ARG002 - all is swapped
        """Switch to a new configuration. Exchanges in flight keep the one they began with."""
        await asyncio.to_thread(self._load, config)
        runtime = self._runtime(config)
        joined, left = self.fleet.apply(runtime.specs())
        self.telemetry.apply(config.telemetry)
        self.book.apply(config, runtime.bases())
        self.kv.apply(config)
        self.pipeline.runtime = runtime
        if self._prober is not None and self._session is not None:
            self._prober.watch(joined, left)
            self.book.watch(self._session, self.supervisor)

    def _load(self, config: Config) -> None:
        """Load what the routing policies of a configuration need. It may take long."""
        chosen = {model.routing or "" for model in config.models}
        chosen |= {tenant.routing for tenant in config.tenants if tenant.routing}
        looks_up = any(self._router.looks_up(policy) for policy in chosen)
        self.kv.load(config, looks_up=looks_up)
        facts = pool_facts(config)
        self._counting.follow(facts)
        self._costs.follow(facts, wanted=looks_up)

    def _emptied(self, replica: str) -> None:
        """The replica's process has ended, or the replica has left."""
        self.kv.emptied(replica)
        self._counting.forget(replica)

    def drain(self) -> None:
        """From now on `/readyz` says 503 and answers end their connections."""
        self.pipeline.draining = True

    def not_ready(self) -> str:
        """Why the gateway should get no new traffic; "" when it should."""
        if self.pipeline.draining:
            return "draining"
        replicas = self.fleet.snapshot().replicas
        if not self._surveyed:
            # A model whose pool is looked at a moment later than another's would be refused meanwhile.
            if any(replica.state is ReplicaState.STARTING for replica in replicas):
                return "replicas are being looked at for the first time"
            self._surveyed = True
        if any(replica.state is ReplicaState.READY for replica in replicas):
            return ""
        return "no replica is ready"

    # --- the two listeners ---

    def admin(self) -> web.Application:
        """The application of the admin port."""
        return Admin(
            config=lambda: self.config,
            snapshot=self.fleet.snapshot,
            telemetry=self.telemetry,
            book=self.book,
            kv=self.kv.status,
            costs=self._costs,
            ready=self.not_ready,
        ).application()

    def _routes(self) -> Routes:
        routes = Routes()
        listing = Listing(lambda: self.pipeline.runtime, self.not_ready, int(self._clock.time()))
        for path, handler in (
            ("/", listing.root),
            ("/livez", listing.alive),
            ("/startupz", listing.alive),
            ("/readyz", listing.ready),
            ("/v1/models", listing.models),
            ("/v1/models/", listing.model),
        ):
            routes.add(path, Route({"GET": handler}))
        for path, dialect in (
            ("/v1/chat/completions", self.dialects["chat"]),
            ("/v1/messages", self.dialects["messages"]),
        ):
            routes.add(path, self._vaulted_route(dialect))
        for path, dialect in (
            ("/v1/completions", self.dialects["completions"]),
            ("/v1/messages/count_tokens", count_messages()),
        ):
            routes.add(path, self._exchange_route(dialect))
        ResponsesApi(self.pipeline, self.store, self.supervisor, self._clock, self._request_id).register(routes)
        for path in ("/v1/embeddings", "/v1/rerank", "/tokenize", "/detokenize", *VLLM_ONLY):
            routes.add(path, self._exchange_route(Plain(path)))
        for path in ("/tokenize", "/detokenize"):  # engines differ in whether they know the /v1 form
            routes.add(f"/v1{path}", self._exchange_route(Plain(path)))
        return routes

    def _exchange_route(self, dialect: Dialect) -> Route:
        return Route({"POST": lambda request, _: self.pipeline.exchange(request, dialect)}, dialect.name)

    def _vaulted_route(self, dialect: Dialect) -> Route:
        async def handle(request: web.BaseRequest, _: str) -> web.StreamResponse:
            if not self.config.reasoning.vault:
                return await self.pipeline.exchange(request, dialect)
            vaulted = Vaulted(dialect, self.store)
            return await self.pipeline.exchange(request, vaulted, keeper=vaulted)

        return Route({"POST": handle}, dialect.name, self._lane(dialect))

    def _lane(self, dialect: Dialect) -> Lane | None:
        """Everyday Chat has one; what it takes holds no tool calls, so the vault has nothing to do with it."""
        return Lane(self.pipeline, self.fleet, dialect, self.supervisor.spawn) if dialect.name == "chat" else None

    def _request_id(self) -> str:
        return f"req_{self.telemetry.ids.hex(24)}"

    def _cors(self) -> Cors:
        return self.config.listen.cors

    def _write_error(self, error: GatewayError, dialect: str, request_id: str) -> web.Response:
        """An error of the HTTP layer, in the form of the dialect that the path belongs to."""
        own = self._request_id()
        writer = self.dialects["messages"] if dialect == "messages" else self.dialects["chat"]
        status, headers, body = writer.encode_error(error, own)
        if request_id:
            headers["x-client-request-id"] = request_id[:128]
        return web.Response(status=status, headers=headers, body=body)

    def _abort(self, member: Member, rid: str) -> None:
        self.supervisor.spawn(self._tell_to_stop(member, rid), f"abort {member.id}")

    async def _tell_to_stop(self, member: Member, rid: str) -> None:
        spec, session = member.kind.spec, self._session
        if session is None:
            return
        headers = {"Authorization": f"Bearer {member.spec.api_key}"} if member.spec.api_key else {}
        try:
            async with session.post(
                member.url.rstrip("/") + spec.abort_path,
                json={spec.rid_field: rid},
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=_ABORT_S),
            ):
                return
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("abort did not reach the engine", replica=member.id, error=repr(error))
