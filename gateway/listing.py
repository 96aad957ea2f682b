"""`/v1/models` in the forms of OpenAI and Anthropic, and the health endpoints of the data port."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec
from aiohttp import hdrs, web

from gateway.auth import Identity
from gateway.config.model import Model
from gateway.errors import Cause, GatewayError
from gateway.runtime import Runtime


class Listing:
    """What can be asked of the gateway itself. A tenant sees the models it may use."""

    __slots__ = ("_created", "_ready", "_runtime")

    def __init__(self, runtime: Callable[[], Runtime], ready: Callable[[], str], created: int) -> None:
        """`created` (seconds since the epoch) is what models are said to have been created at."""
        self._runtime = runtime
        self._ready = ready
        self._created = created

    async def models(self, request: web.BaseRequest, _: str) -> web.Response:
        """GET /v1/models."""
        runtime = self._runtime()
        identity = _identify(runtime, request)
        cards = [self._card(name, model) for name, model in _visible(runtime, identity)]
        body: dict[str, Any] = {"object": "list", "data": cards}
        if "anthropic-version" in request.headers:
            body |= {
                "has_more": False,
                "first_id": cards[0]["id"] if cards else None,
                "last_id": cards[-1]["id"] if cards else None,
            }
        return _json(body)

    async def model(self, request: web.BaseRequest, name: str) -> web.Response:
        """GET /v1/models/{id}."""
        runtime = self._runtime()
        identity = _identify(runtime, request)
        model = runtime.models.resolve(name)
        if model is None or not (identity.may_use(name) or identity.may_use(model.name)):
            raise GatewayError(Cause.MODEL_NOT_FOUND, f"The model `{name[:128]}` does not exist.", param="model")
        return _json(self._card(name, model))

    def _card(self, name: str, model: Model) -> dict[str, Any]:
        """One model with the keys of both vendors: their clients ignore each other's."""
        return {
            "id": name,
            "object": "model",
            "created": self._created,
            "owned_by": "headrace",
            "root": model.name,
            "type": "model",
            "display_name": name,
            "created_at": datetime.fromtimestamp(self._created, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "lifecycle": "active",
        }

    async def alive(self, request: web.BaseRequest, _: str) -> web.Response:
        """GET /livez and /startupz: the process serves."""
        return web.Response(text="" if request.method == hdrs.METH_HEAD else "ok\n")

    async def ready(self, _: web.BaseRequest, __: str) -> web.Response:
        """GET /readyz: 503 with the reason while the gateway should get no new traffic."""
        reason = self._ready()
        return web.Response(text=f"{reason or 'ok'}\n", status=503 if reason else 200)

    async def root(self, _: web.BaseRequest, __: str) -> web.Response:
        """GET and HEAD /: some clients look whether anybody is there."""
        return _json({"service": "headrace"})


def _identify(runtime: Runtime, request: web.BaseRequest) -> Identity:
    return runtime.auth.identify(request.headers.get(hdrs.AUTHORIZATION), request.headers.get("X-Api-Key"))


def _visible(runtime: Runtime, identity: Identity) -> list[tuple[str, Model]]:
    found = [(name, runtime.models.resolve(name)) for name in runtime.models.names()]
    return [
        (name, model)
        for name, model in found
        if model is not None and (identity.may_use(name) or identity.may_use(model.name))
    ]


def _json(body: dict[str, Any]) -> web.Response:
    return web.Response(body=msgspec.json.encode(body), content_type="application/json")
