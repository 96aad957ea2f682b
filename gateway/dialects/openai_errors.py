"""Errors as the OpenAI dialects write them, before the first byte and in the middle of a stream."""

from __future__ import annotations

import math

import msgspec

from gateway.errors import Cause, GatewayError

_NEVER_RETRY = {Cause.QUOTA}
_RETRY = {Cause.OVERLOADED, Cause.RATE_LIMIT, Cause.UPSTREAM, Cause.TIMEOUT}


def record(error: GatewayError) -> dict[str, str | None]:
    """The `error` object: message, type, param and code (a string or null)."""
    _, kind, code = error.cause.value
    message = error.message
    if error.cause is Cause.RATE_LIMIT and error.retry_after_s is not None:
        # Codex reads the delay out of the message.
        message = f"{message.rstrip('.')}. Please try again in {max(1, math.ceil(error.retry_after_s))}s."
    return {"message": message, "type": kind, "param": error.param, "code": error.code or code}


def body(error: GatewayError) -> bytes:
    """The whole envelope."""
    return msgspec.json.encode({"error": record(error)})


def retry_headers(error: GatewayError) -> dict[str, str]:
    """What the SDKs read to decide whether and when to try again."""
    headers = dict(error.headers)
    if error.retry_after_s is not None:
        seconds = max(1, math.ceil(error.retry_after_s))
        headers["retry-after"] = str(seconds)
        headers["retry-after-ms"] = str(max(1, round(error.retry_after_s * 1000)))
    if error.cause in _RETRY:
        headers["x-should-retry"] = "true"
    elif error.cause in _NEVER_RETRY or error.cause.status < 429:
        headers["x-should-retry"] = "false"
    if error.cause is Cause.OVERLOADED and "retry-after" not in headers:
        headers["retry-after"] = "1"
    return headers


def encode_error(error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of an error before the first byte."""
    headers = {"content-type": "application/json", "x-request-id": request_id, "request-id": request_id}
    return error.cause.status, headers | retry_headers(error), body(error)
