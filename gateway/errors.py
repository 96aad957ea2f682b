"""Errors the client sees. Each dialect writes them in its own envelope and with its own status."""

from __future__ import annotations

import enum

from backends.contracts import EngineFailure, Fault


class Cause(enum.Enum):
    """Why an exchange is refused or fails. The value is (OpenAI status, OpenAI type, default OpenAI code)."""

    BAD_REQUEST = (400, "invalid_request_error", None)
    UNSUPPORTED_PARAMETER = (400, "invalid_request_error", "unsupported_parameter")
    UNSUPPORTED_VALUE = (400, "invalid_request_error", "unsupported_value")
    UNSUPPORTED_TOOL = (400, "invalid_request_error", "unsupported_tool")
    CONTEXT_LENGTH = (400, "invalid_request_error", "context_length_exceeded")
    UNAUTHENTICATED = (401, "authentication_error", "invalid_api_key")
    QUOTA = (429, "insufficient_quota", "insufficient_quota")
    FORBIDDEN = (403, "permission_error", None)
    NOT_FOUND = (404, "invalid_request_error", None)
    MODEL_NOT_FOUND = (404, "invalid_request_error", "model_not_found")
    METHOD = (405, "invalid_request_error", "method_not_allowed")
    REQUEST_TIMEOUT = (408, "invalid_request_error", "request_timeout")
    CONFLICT = (409, "invalid_request_error", None)
    TOO_LARGE = (413, "invalid_request_error", "request_too_large")
    MEDIA_TYPE = (415, "invalid_request_error", "unsupported_media_type")
    UPGRADE_REQUIRED = (426, "invalid_request_error", "upgrade_required")
    HEADERS_TOO_LARGE = (431, "invalid_request_error", "headers_too_large")
    RATE_LIMIT = (429, "rate_limit_error", "rate_limit_exceeded")
    OVERLOADED = (503, "server_error", "server_overloaded")
    UPSTREAM = (500, "server_error", "upstream_error")
    INTERNAL = (500, "server_error", "internal_error")
    TIMEOUT = (504, "server_error", "timeout")
    CLIENT_GONE = (499, "client_error", None)

    @property
    def status(self) -> int:
        """HTTP status in the OpenAI dialects."""
        return int(self.value[0])


class GatewayError(Exception):
    """What the client is told. `message` is one line and safe to show."""

    __slots__ = ("cause", "code", "headers", "message", "numbers", "param", "retry_after_s")

    def __init__(
        self,
        cause: Cause,
        message: str,
        *,
        param: str | None = None,
        code: str | None = None,
        retry_after_s: float | None = None,
        numbers: tuple[int, ...] = (),
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        super().__init__(message)
        self.cause = cause
        self.message = message
        self.param = param
        self.code = code
        self.retry_after_s = retry_after_s
        self.numbers = numbers  # (prompt tokens, limit) or (prompt, max output, limit), when known
        self.headers = headers


_CAUSES: dict[Fault, Cause] = {
    Fault.CONNECT: Cause.UPSTREAM,
    Fault.RESET: Cause.UPSTREAM,
    Fault.STALE: Cause.UPSTREAM,
    Fault.TIMEOUT: Cause.TIMEOUT,
    Fault.OVERLOADED: Cause.OVERLOADED,
    Fault.ENGINE: Cause.UPSTREAM,
    Fault.TRUNCATED: Cause.UPSTREAM,
    Fault.PROTOCOL: Cause.UPSTREAM,
    Fault.ANSWER: Cause.UPSTREAM,
}


def from_failure(failure: EngineFailure) -> GatewayError:
    """What the client is told of the attempt that decided the exchange.

    A client's own fault keeps the engine's (scrubbed) words; anything else is described without them.
    """
    if failure.fault is not Fault.CLIENT:
        return GatewayError(_CAUSES[failure.fault], failure.message, retry_after_s=failure.retry_after_s)
    if failure.code == "context_length_exceeded":
        return GatewayError(Cause.CONTEXT_LENGTH, failure.message, param=failure.param, numbers=failure.numbers)
    cause = {404: Cause.MODEL_NOT_FOUND, 413: Cause.TOO_LARGE}.get(failure.status, Cause.BAD_REQUEST)
    return GatewayError(cause, failure.message, param=failure.param, code=failure.code)
