"""What the head of a request says of whoever sent it."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import hdrs

from gateway.auth import Identity
from gateway.config.model import Cors
from gateway.dialects.fields import session_of
from gateway.runtime import Runtime
from gateway.stream import header_line
from gateway.telemetry.ids import TraceContext, parse_context

_ID_LIMIT = 128  # characters of the client's own request id


class Caller:
    """Read once from a head; good for every request that repeats that head."""

    __slots__ = ("_headers", "_identity", "address", "answer_lines", "endpoint", "in_session", "parent",
                 "runtime")  # fmt: skip

    answer_lines: bytes
    runtime: Runtime
    _identity: Identity | None

    def __init__(self, headers: Mapping[str, str], path: str, address: str, runtime: Runtime) -> None:
        """`headers` find their names in any case; `address` is the peer's, "" when unknown."""
        traceparent = headers.get("traceparent")
        self._headers = headers
        self.endpoint = path
        self.address = address
        self.parent: TraceContext | None = (
            parse_context(traceparent, headers.get("tracestate")) if traceparent else None
        )
        self.in_session = session_of(headers) is not None
        self.follow(runtime)

    def follow(self, runtime: Runtime) -> None:
        """Be as the configuration of `runtime` says from now on."""
        self.runtime = runtime
        self.answer_lines = _answer_lines(self._headers, runtime.config.listen.cors)
        self._identity = None

    def identity(self) -> Identity:
        """Who it is; looked up when first asked for. Raises GatewayError UNAUTHENTICATED."""
        if self._identity is None:
            headers = self._headers
            self._identity = self.runtime.auth.identify(headers.get(hdrs.AUTHORIZATION), headers.get("X-Api-Key"))
        return self._identity


def allowed_origin(headers: Mapping[str, str], origins: tuple[str, ...]) -> str:
    """The value of access-control-allow-origin for this request, "" when its origin is not allowed."""
    origin = headers.get(hdrs.ORIGIN, "")
    return origin if origin and ("*" in origins or origin in origins) else ""


def _answer_lines(headers: Mapping[str, str], cors: Cors) -> bytes:
    """Header lines of the answer that follow from the request's head."""
    lines = b""
    if given := headers.get("X-Request-Id"):
        lines = header_line(b"x-client-request-id", given[:_ID_LIMIT])
    if cors.origins and (origin := allowed_origin(headers, cors.origins)):
        lines += header_line(b"access-control-allow-origin", origin) + header_line(b"vary", "Origin")
    return lines
