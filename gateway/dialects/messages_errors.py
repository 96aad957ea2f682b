"""Errors as the Messages dialect writes them."""

from __future__ import annotations

import msgspec

from gateway.dialects.openai_errors import retry_headers
from gateway.errors import Cause, GatewayError

_STATUS = {Cause.QUOTA: 402, Cause.OVERLOADED: 529}
_TYPES = {
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def status_of(error: GatewayError) -> int:
    """The HTTP status of an error."""
    return _STATUS.get(error.cause, error.cause.status)


def record(error: GatewayError) -> dict[str, str]:
    """The `error` object."""
    status = status_of(error)
    default = "api_error" if status >= 500 else "invalid_request_error"
    return {"type": _TYPES.get(status, default), "message": message_of(error)}


def message_of(error: GatewayError) -> str:
    """The message; an overflow in the exact words that clients look for and take the numbers from."""
    numbers = error.numbers
    if error.cause is not Cause.CONTEXT_LENGTH or len(numbers) not in {2, 3}:
        return error.message if error.cause is not Cause.CONTEXT_LENGTH else _too_long(error)
    prompt, limit = numbers[0], numbers[-1]
    if len(numbers) == 3 and prompt <= limit:
        return (
            f"input length and `max_tokens` exceed context limit: {prompt} + {numbers[1]} > {limit}, "
            "decrease input length or `max_tokens` and try again"
        )
    return f"prompt is too long: {prompt} tokens > {limit} maximum"


def _too_long(error: GatewayError) -> str:
    return f"prompt is too long: {error.message}"


def body(error: GatewayError, request_id: str) -> bytes:
    """The whole envelope."""
    return msgspec.json.encode({"type": "error", "error": record(error), "request_id": request_id})


def encode_error(error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an error before the first byte."""
    headers = {"content-type": "application/json", "x-request-id": request_id, "request-id": request_id}
    return status_of(error), headers | retry_headers(error), body(error, request_id)
