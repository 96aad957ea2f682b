"""The admin listener: metrics for everybody who reaches it, the read-only admin API behind a token."""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import msgspec
from aiohttp import hdrs, web

from backends.contract import TERMS, PoolContract, show
from backends.contracts import FleetSnapshot, Replica
from gateway.book import ContractBook
from gateway.config.model import Config
from gateway.config.redact import redacted
from gateway.telemetry.hub import Telemetry
from gateway.telemetry.metrics import render
from gateway.telemetry.record import ExchangeRecord
from policies.cost_model.costs import Costs

if TYPE_CHECKING:
    from policies.cost_model.model import CostModel

_encode = msgspec.json.encode


class Admin:
    """Handlers of the admin port. Reads only; each answer is built from one snapshot."""

    __slots__ = ("_book", "_config", "_costs", "_kv", "_ready", "_snapshot", "_telemetry")

    def __init__(
        self,
        *,
        config: Callable[[], Config],
        snapshot: Callable[[], FleetSnapshot],
        telemetry: Telemetry,
        book: ContractBook,
        kv: Callable[[], dict[str, Any]],
        costs: Costs,
        ready: Callable[[], str],
    ) -> None:
        """`ready` says why the gateway should get no traffic, "" when it should."""
        self._config = config
        self._snapshot = snapshot
        self._telemetry = telemetry
        self._book = book
        self._kv = kv
        self._costs = costs
        self._ready = ready

    def application(self) -> web.Application:
        """The aiohttp application of the admin port."""
        app = web.Application(middlewares=[self._guard])
        app.router.add_get("/livez", self._livez)
        app.router.add_get("/startupz", self._livez)
        app.router.add_get("/readyz", self._readyz)
        app.router.add_get("/metrics", self._metrics)
        app.router.add_get("/admin/v1/pools", self._pools)
        app.router.add_get("/admin/v1/replicas", self._replicas)
        app.router.add_get("/admin/v1/contracts", self._contracts)
        app.router.add_get("/admin/v1/kv", self._cache)
        app.router.add_get("/admin/v1/config", self._configuration)
        app.router.add_get("/admin/v1/exchanges", self._exchanges)
        return app

    @web.middleware
    async def _guard(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        if request.path.startswith("/admin/"):
            token = self._config().admin.token
            given = request.headers.get(hdrs.AUTHORIZATION, "").removeprefix("Bearer ")
            presented = given.encode("utf-8", "surrogateescape")
            if token is None or not hmac.compare_digest(presented, token.get_secret_value().encode()):
                return _json({"error": "the admin API needs `Authorization: Bearer <admin.token>`"}, status=401)
        response: web.StreamResponse = await handler(request)
        return response

    async def _livez(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._ready()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def _metrics(self, request: web.Request) -> web.Response:
        values = self._telemetry.gather()
        body, content_type = await asyncio.to_thread(render, values, request.headers.get(hdrs.ACCEPT, ""))
        return web.Response(body=body, headers={hdrs.CONTENT_TYPE: content_type})

    async def _pools(self, _: web.Request) -> web.Response:
        snapshot = self._snapshot()
        pools = []
        for pool in self._config().pools:
            replicas = snapshot.by_pool.get(pool.name, ())
            pools.append(
                {
                    "name": pool.name,
                    "engine": pool.engine,
                    "model": pool.model,
                    "hardware": pool.hardware,
                    "precision": pool.precision,
                    "revision": pool.revision,
                    "replicas": len(replicas),
                    "ready": sum(replica.state.value == "ready" for replica in replicas),
                    "in_flight": sum(snapshot.table.exchanges[replica.row] for replica in replicas),
                }
            )
        return _json({"pools": pools})

    async def _replicas(self, _: web.Request) -> web.Response:
        snapshot = self._snapshot()
        model = self._costs.model
        learned = {} if model is None else _learned(model)
        shown = [_replica(replica, snapshot) | {"learned": learned.get(replica.id)} for replica in snapshot.replicas]
        return _json({"replicas": shown})

    async def _contracts(self, _: web.Request) -> web.Response:
        contracts = [_contract(contract) for contract in self._book.contracts.values()]
        incidents = [{"pool": i.pool, "term": i.term, "said": str(i)} for i in self._book.incidents]
        return _json({"contracts": contracts, "incidents": incidents})

    async def _cache(self, _: web.Request) -> web.Response:
        return _json(self._kv())

    async def _configuration(self, _: web.Request) -> web.Response:
        return _json({"generation": self._telemetry.generation, "config": redacted(self._config())})

    async def _exchanges(self, request: web.Request) -> web.Response:
        limit = request.query.get("limit", "50")
        if len(limit) > 9 or not limit.isdecimal():
            return _json({"error": "limit: not a number"}, status=400)
        newest = list(self._telemetry.recent)[-int(limit) :] if int(limit) else []
        live = tuple(self._telemetry.live)
        return _json({"in_flight": _listed(live), "recent": _listed(reversed(newest))})


def _json(data: object, *, status: int = 200) -> web.Response:
    return web.Response(body=_encode(data), status=status, content_type="application/json")


def _replica(replica: Replica, snapshot: FleetSnapshot) -> dict[str, Any]:
    load, table = replica.load, snapshot.table
    return {
        "id": replica.id,
        "pool": replica.pool,
        "url": replica.url,
        "state": replica.state.value,
        "reason": replica.reason,
        "version": replica.version,
        "in_flight": table.exchanges[replica.row],
        "prefill_tokens": table.prefill_tokens[replica.row],
        "context_tokens": table.context_tokens[replica.row],
        "engine": {
            "running": load.running,
            "waiting": load.waiting,
            "waiting_uncached_tokens": load.waiting_uncached_tokens,
            "kv_used": load.kv_used,
            "kv_capacity_tokens": load.kv_capacity_tokens,
        },
    }


def _learned(model: CostModel) -> dict[str, dict[str, Any]]:
    """By replica: how well its times are predicted, and the factors that were learned on what its profile says."""
    return {
        score.replica: {
            "ttft_error": score.ttft_error,
            "ttft_observations": score.ttft_seen,
            "per_token_error": score.pace_error,
            "per_token_observations": score.pace_seen,
            "factors": model.multipliers(score.replica),
        }
        for score in model.scores()
    }


def _contract(contract: PoolContract) -> dict[str, Any]:
    """The terms that are known, with where each comes from, and what was declared otherwise."""
    terms = {
        term: {"value": show(fact.value), "source": fact.source.value, "evidence": fact.evidence, "at_s": fact.at_s}
        for term in TERMS
        if (fact := contract.facts.get(term)) is not None
    }
    against = [
        {"term": entry.term, "declared": show(entry.declared), "probed": show(entry.probed)}
        for entry in contract.contradictions
    ]
    return {
        "pool": contract.pool,
        "engine": contract.engine,
        "held": contract.held,
        "terms": terms,
        "contradictions": against,
    }


def _listed(records: Iterable[ExchangeRecord]) -> list[dict[str, Any]]:
    return [
        {
            "request_id": record.request_id,
            "trace_id": record.trace_id,
            "tenant": record.tenant,
            "endpoint": record.endpoint,
            "model": record.model,
            "status": record.status,
            "error": record.error,
            "finish_reason": record.finish_reason,
            "replicas": [attempt.replica.id for attempt in record.attempts],
            "ttft_ms": _span(record.started, record.first_token),
            "duration_ms": _span(record.started, record.ended),
            "prompt_tokens": record.prompt_tokens,
            "cached_tokens": record.cached_tokens,
            "completion_tokens": record.completion_tokens,
        }
        for record in records
    ]


def _span(start_s: float, end_s: float) -> float | None:
    return round((end_s - start_s) * 1000, 3) if end_s else None
