"""What the head of a request says of whoever sent it."""

from __future__ import annotations

from aiohttp import hdrs, web

from gateway.auth import Identity
from gateway.config.model import Cors
from gateway.dialects.fields import session_of
from gateway.runtime import Runtime
from gateway.stream import header_line
from gateway.telemetry.ids import TraceContext, parse_context

_ID_LIMIT = 128  # characters of the client's own request id


class Caller:
    """Read once from a head under one configuration; good for every request that repeats that head."""

    __slots__ = ("_authorization", "_identity", "_x_api_key", "address", "answer_lines", "endpoint", "in_session",
                 "parent", "runtime")  # fmt: skip

    def __init__(self, request: web.BaseRequest, runtime: Runtime) -> None:
        headers = request.headers
        traceparent = headers.get("traceparent")
        self.runtime = runtime
        self.endpoint = request.path
        self.address = request.remote or ""
        self.parent: TraceContext | None = (
            parse_context(traceparent, headers.get("tracestate")) if traceparent else None
        )
        self.answer_lines = _answer_lines(request, runtime.config.listen.cors)
        self.in_session = session_of(headers) is not None
        self._authorization = headers.get(hdrs.AUTHORIZATION)
        self._x_api_key = headers.get("X-Api-Key")
        self._identity: Identity | None = None

    def identity(self) -> Identity:
        """Who it is; looked up when first asked for. Raises GatewayError UNAUTHENTICATED."""
        if self._identity is None:
            self._identity = self.runtime.auth.identify(self._authorization, self._x_api_key)
        return self._identity


def allowed_origin(request: web.BaseRequest, origins: tuple[str, ...]) -> str:
    """The value of access-control-allow-origin for this request, "" when its origin is not allowed."""
    origin = request.headers.get(hdrs.ORIGIN, "")
    return origin if origin and ("*" in origins or origin in origins) else ""


def _answer_lines(request: web.BaseRequest, cors: Cors) -> bytes:
    """Header lines of the answer that follow from the request's head."""
    lines = b""
    if given := request.headers.get("X-Request-Id"):
        lines = header_line(b"x-client-request-id", given[:_ID_LIMIT])
    if cors.origins and (origin := allowed_origin(request, cors.origins)):
        lines += header_line(b"access-control-allow-origin", origin) + header_line(b"vary", "Origin")
    return lines
