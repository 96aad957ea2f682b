"""aiohttp's side of a client's connection: it serves what no lane does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import structlog
from aiohttp import web
from aiohttp.http_exceptions import LineTooLong

from gateway.connection import Connection
from gateway.errors import Cause, GatewayError

log = structlog.get_logger("headrace.edge")

ErrorWriter = Callable[[GatewayError, str, str], web.Response]


class Handler(web.RequestHandler):
    """aiohttp's handler, with errors below HTTP in our form, on a connection that others serve besides."""

    __slots__ = ("_connection", "_write_error")

    def __init__(self, server: web.Server, connection: Connection, write_error: ErrorWriter, **options: Any) -> None:
        super().__init__(server, **options)
        self._connection = connection
        self._write_error = write_error

    @property
    def idle(self) -> bool:
        """Whether it waits for a request."""
        waiter = self._waiter
        return waiter is not None and not waiter.done()

    @property
    def unasked(self) -> bool:
        """Whether it never got a whole head."""
        return not self._request_count

    def _process_keepalive(self) -> None:
        self._next_keepalive_close_time = max(self._next_keepalive_close_time, self._connection.patience_until)
        super()._process_keepalive()

    def handle_error(
        self,
        request: web.BaseRequest,  # noqa: ARG002 - it was never parsed
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Answer bytes that are no request, and bugs."""
        if status >= 500:
            log.error("handler failed", error=repr(exc))
            error = GatewayError(Cause.INTERNAL, "internal error")
        else:
            error = _bad_http(exc, message or str(exc))
        response = self._write_error(error, "chat", "")
        response.force_close()
        return response


def _bad_http(exc: BaseException | None, message: str) -> GatewayError:
    first = (message.strip().splitlines() or ["not a request"])[0][:160]
    if isinstance(exc, LineTooLong) or "many headers" in first:
        return GatewayError(Cause.HEADERS_TOO_LARGE, "the request line or the headers are too large")
    return GatewayError(Cause.BAD_REQUEST, f"bad HTTP: {first}")
