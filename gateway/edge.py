"""The data listener: who answers a path, and answers of the HTTP layer itself in a client's own error form."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass

from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter
from aiohttp.http_parser import RawRequestMessage
from aiohttp.http_writer import HttpVersion10
from aiohttp.streams import StreamReader

from gateway.caller import allowed_origin
from gateway.config.model import Cors
from gateway.connection import Connection, Lane
from gateway.errors import Cause, GatewayError
from gateway.handler import ErrorWriter, Handler
from gateway.heads import Head

Answerer = Callable[[web.BaseRequest, str], Awaitable[web.StreamResponse]]

# One of these twice is an attempt to be read differently by two parties.
_SINGLE = (hdrs.AUTHORIZATION, "X-Api-Key", hdrs.CONTENT_TYPE, hdrs.CONTENT_ENCODING)
_KEEPALIVE_S = 75.0
_LOOK_S = 0.02
_ALLOWED_HEADERS = "authorization, x-api-key, content-type, anthropic-version, anthropic-beta, traceparent, tracestate"


@dataclass(frozen=True, slots=True)
class Route:
    """Who answers one path, by method. `dialect` names the form of its errors; `lane` may serve everyday POSTs."""

    methods: Mapping[str, Answerer]
    dialect: str = "chat"
    lane: Lane | None = None


class Routes:
    """Exact paths, and paths that end in one variable segment (`/v1/models/{id}`, which may hold slashes)."""

    __slots__ = ("_exact", "_prefixes")

    def __init__(self) -> None:
        self._exact: dict[str, Route] = {}
        self._prefixes: list[tuple[str, Route]] = []

    def add(self, path: str, route: Route) -> None:
        """Register a path; one that ends in "/" takes the rest as a variable."""
        if path.endswith("/") and path != "/":
            self._prefixes.append((path, route))
            self._prefixes.sort(key=lambda entry: -len(entry[0]))
        else:
            self._exact[path] = route

    def find(self, path: str) -> tuple[Route, str] | None:
        """The route of a path and its variable ("" for an exact path)."""
        route = self._exact.get(path)
        if route is not None:
            return route, ""
        if path.endswith("/") and (route := self._exact.get(path.rstrip("/") or "/")) is not None:
            return route, ""
        for prefix, candidate in self._prefixes:
            if path.startswith(prefix) and len(path) > len(prefix):
                return candidate, path[len(prefix) :].rstrip("/")
        return None


class EdgeServer(web.Server):
    """aiohttp's low-level server over a table of routes."""

    def __init__(
        self,
        routes: Routes,
        write_error: ErrorWriter,
        *,
        cors: Callable[[], Cors],
        head_timeout_s: float,
        body_cap: int,
    ) -> None:
        super().__init__(
            self._answer,
            request_factory=self._request,
            handler_cancellation=True,
            access_log=None,
            auto_decompress=False,
            keepalive_timeout=_KEEPALIVE_S,
            tcp_keepalive=True,
            read_bufsize=256 * 1024,
            lingering_time=2.0,
        )
        self._routes = routes
        self._cors = cors
        self._body_cap = body_cap
        self.write_error = write_error
        self.head_timeout_s = head_timeout_s
        self.keepalive_s = _KEEPALIVE_S
        self.clients: set[Connection] = set()

    def __call__(self) -> Connection:  # type: ignore[override] # a protocol, as any
        """A protocol for one new connection."""
        return Connection(self, self._loop)

    def handler(self, connection: Connection) -> Handler:
        """aiohttp's handler for a connection."""
        return Handler(self, connection, self.write_error, loop=self._loop, **self._kwargs)

    def pre_shutdown(self) -> None:
        """Serve no further request on any connection."""
        for client in tuple(self.clients):
            client.close()

    async def shutdown(self, timeout: float | None = None) -> None:  # noqa: ASYNC109 - aiohttp's
        """Give exchanges `timeout` seconds to end, then end all connections."""
        until = self._loop.time() + (timeout or 0.0)
        while any(client.busy for client in self.clients) and self._loop.time() < until:  # noqa: ASYNC110 - seldom
            await asyncio.sleep(_LOOK_S)
        await super().shutdown(timeout)
        for client in tuple(self.clients):
            client.end()

    def lane_of(self, head: Head) -> Lane | None:
        """The lane of the route that a head asks for."""
        found = self._routes.find(head.path) if head.method == hdrs.METH_POST and head.length else None
        return found[0].lane if found else None

    def _request(
        self,
        message: RawRequestMessage,
        payload: StreamReader,
        protocol: web.RequestHandler,
        writer: AbstractStreamWriter,
        task: asyncio.Task[None],
    ) -> web.BaseRequest:
        if message.version < HttpVersion10:  # an answer repeats the version, and 0.9 has no status line to say it in
            message = message._replace(version=HttpVersion10)
        return web.BaseRequest(message, payload, protocol, writer, task, self._loop, client_max_size=self._body_cap)

    async def _answer(self, request: web.BaseRequest) -> web.StreamResponse:
        found = self._routes.find(request.path)
        dialect = found[0].dialect if found else ("messages" if request.path.startswith("/v1/messages") else "chat")
        try:
            for name in _SINGLE:
                if len(request.headers.getall(name, ())) > 1:
                    raise GatewayError(Cause.BAD_REQUEST, f"the header {name.lower()} is given twice")
            if request.method == hdrs.METH_OPTIONS:
                return self._preflight(request, found[0] if found else None)
            if found is None:
                raise GatewayError(Cause.NOT_FOUND, f"no such path: {request.path[:100]}")
            route, variable = found
            handler = _handler(request, route)
            if request.headers.get(hdrs.EXPECT, "").lower() == "100-continue":
                await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            response = await handler(request, variable)
        except GatewayError as error:
            response = self.write_error(error, dialect, request.headers.get("X-Request-Id", ""))
        if request.method == hdrs.METH_CONNECT:  # what follows is no request to the client, but would be one to us
            response.force_close()
        self._share(request, response)
        return response

    def _preflight(self, request: web.BaseRequest, route: Route | None) -> web.Response:
        methods = ", ".join(sorted(route.methods)) if route else "GET, POST"
        response = web.Response(status=204, headers={hdrs.ALLOW: f"{methods}, OPTIONS"})
        if self._share(request, response):
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_METHODS] = methods
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_HEADERS] = _ALLOWED_HEADERS
            response.headers[hdrs.ACCESS_CONTROL_MAX_AGE] = str(self._cors().max_age_s)
        return response

    def _share(self, request: web.BaseRequest, response: web.StreamResponse) -> bool:
        """Let a browser of an allowed origin read the answer."""
        origins = self._cors().origins
        if not origins or response.prepared:
            return False
        allowed = allowed_origin(request.headers, origins)
        if allowed:
            response.headers[hdrs.ACCESS_CONTROL_ALLOW_ORIGIN] = allowed
            response.headers[hdrs.VARY] = hdrs.ORIGIN
        return bool(allowed)


def _handler(request: web.BaseRequest, route: Route) -> Answerer:
    method = request.method
    handler = route.methods.get(hdrs.METH_GET if method == hdrs.METH_HEAD else method)
    if handler is None:
        allow = ", ".join(sorted(route.methods))
        raise GatewayError(Cause.METHOD, f"{request.path[:100]} takes {allow}", headers=((hdrs.ALLOW, allow),))
    return handler
