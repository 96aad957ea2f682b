"""The endpoints of stored responses: create, read, replay, delete, cancel, list the input."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiohttp import hdrs, web

from backends.contracts import Clock
from backends.supervisor import Supervisor
from gateway.dialects.counting import count_responses
from gateway.edge import Route, Routes
from gateway.errors import Cause, GatewayError
from gateway.pipeline import Pipeline
from gateway.responses.background import Runs
from gateway.responses.compact import CompactTurn
from gateway.responses.items import listed, page
from gateway.responses.library import Library
from gateway.responses.record import FINISHED, Record
from gateway.responses.streams import HeldStream
from gateway.responses.turn import Turn, unavailable
from gateway.responses.websocket import Sockets
from gateway.state.base import StateStore, StateUnavailable
from gateway.stream import ClientStream

_PATH = "/v1/responses"
_NUMBER = re.compile(r"-?[0-9]{1,18}")
Action = Callable[[web.BaseRequest, Library, Record], Awaitable[web.StreamResponse]]


class ResponsesApi:
    """Handlers of /v1/responses and below. `new_id` makes ids of requests that are no exchanges."""

    def __init__(
        self, pipeline: Pipeline, store: StateStore, supervisor: Supervisor, clock: Clock, new_id: Callable[[], str]
    ) -> None:
        self._pipeline = pipeline
        self._store = store
        self._new_id = new_id
        self._runs = Runs(pipeline, store, supervisor, clock)
        self._sockets = Sockets(pipeline, store, supervisor)
        self._actions: dict[tuple[str, str], Action] = {
            ("GET", ""): self._get,
            ("DELETE", ""): self._delete,
            ("POST", "cancel"): self._cancel,
            ("GET", "input_items"): self._input_items,
        }

    def register(self, routes: Routes) -> None:
        """Add the paths."""
        routes.add(_PATH, Route({"POST": self._create, "GET": self._sockets.serve}, "responses"))
        routes.add(f"{_PATH}/compact", Route({"POST": self._compact}, "responses"))
        routes.add(f"{_PATH}/input_tokens", Route({"POST": self._count}, "responses"))
        routes.add(f"{_PATH}/", Route(dict.fromkeys(("GET", "POST", "DELETE"), self._stored), "responses"))

    async def _create(self, request: web.BaseRequest, _: str) -> web.StreamResponse:
        stream = HeldStream.of(request, close=self._pipeline.draining)
        turn = self._runs.turn(request, stream)
        return await self._pipeline.exchange(request, turn, keeper=turn, stream=stream)

    async def _compact(self, request: web.BaseRequest, _: str) -> web.StreamResponse:
        turn = CompactTurn(self._store)
        return await self._pipeline.exchange(request, turn, keeper=turn)

    async def _count(self, request: web.BaseRequest, _: str) -> web.StreamResponse:
        turn = Turn(self._store)
        return await self._pipeline.exchange(request, count_responses(turn), keeper=turn)

    async def _stored(self, request: web.BaseRequest, rest: str) -> web.StreamResponse:
        """Whatever is done with one stored response."""
        response_id, _, what = rest.partition("/")
        action = self._actions.get(("GET" if request.method == hdrs.METH_HEAD else request.method, what))
        if action is None:
            raise GatewayError(Cause.NOT_FOUND, f"no such path: {request.method} {request.path[:100]}")
        runtime = self._pipeline.runtime
        headers = request.headers
        identity = runtime.auth.identify(headers.get(hdrs.AUTHORIZATION), headers.get("X-Api-Key"))
        library = Library(self._store, runtime.config.state, identity.name)
        try:
            record = await library.find(response_id)
            if record is None:
                raise GatewayError(Cause.NOT_FOUND, f"Response with id {response_id[:64]!r} not found.")
            return await action(request, library, await self._runs.current(library, record))
        except StateUnavailable:
            raise unavailable() from None

    async def _get(self, request: web.BaseRequest, library: Library, record: Record) -> web.StreamResponse:
        if request.query.get("stream") not in {"true", "1"} or request.method == hdrs.METH_HEAD:
            return self._json(record.response)
        if not record.streamed:
            detail = "stream: only a response created with background and stream can be streamed again"
            raise GatewayError(Cause.UNSUPPORTED_VALUE, detail, param="stream")
        after = request.query.get("starting_after", "-1")
        if _NUMBER.fullmatch(after) is None:
            raise GatewayError(Cause.BAD_REQUEST, "starting_after: expected a number", param="starting_after")
        stream = ClientStream.of(request, close=self._pipeline.draining)
        for name, value in self._ids().items():
            stream.header(name.encode(), value)
        await self._runs.replay.follow(stream, library, record, int(after))
        return stream.response()

    async def _delete(self, _: web.BaseRequest, library: Library, record: Record) -> web.StreamResponse:
        if record.background and record.status not in FINISHED:
            record = await self._runs.cancel(library, record)
        await library.delete(record)
        return self._json({"id": record.id, "object": "response", "deleted": True})

    async def _cancel(self, _: web.BaseRequest, library: Library, record: Record) -> web.StreamResponse:
        if not record.background:
            raise GatewayError(Cause.BAD_REQUEST, "Cannot cancel a synchronous response.", param="response_id")
        return self._json((await self._runs.cancel(library, record)).response)

    async def _input_items(self, request: web.BaseRequest, library: Library, record: Record) -> web.StreamResponse:
        limit = self._pipeline.runtime.config.listen.body_limit_bytes
        items = await library.input_of(record, limit)
        return self._json(page(listed(items, record.id), request.query))

    def _ids(self) -> dict[str, str]:
        own = self._new_id()
        return {"x-request-id": own, "request-id": own}

    def _json(self, body: dict[str, Any]) -> web.Response:
        return web.Response(body=msgspec.json.encode(body), content_type="application/json", headers=self._ids())
