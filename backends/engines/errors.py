"""What engines say when they refuse or fail: one reader for every known shape, one table for whose fault it is.

Shapes seen: nested `{"error": {...}}` (vLLM, SGLang Responses), flat `{"object": "error", ...}` (SGLang Chat),
Anthropic's `{"type": "error", "error": {...}}`, a bare string (`{"error": "Unauthorized"}`), FastAPI's
`{"detail": ...}`, the Responses event `response.failed`, the native `meta_info.finish_reason` abort, and text or HTML
of a proxy in front.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import msgspec

from backends.contracts import EngineFailure, Fault
from backends.engines.scrub import parameter, scrub, tidy_param, validation

_BY_STATUS: Final[Mapping[int, Fault]] = {
    401: Fault.ENGINE,  # the gateway's own credential was refused: not the client's fault
    403: Fault.ENGINE,
    404: Fault.ENGINE,  # the gateway chose path and model name
    405: Fault.ENGINE,
    408: Fault.TIMEOUT,
    429: Fault.OVERLOADED,
    503: Fault.OVERLOADED,
    504: Fault.TIMEOUT,
    529: Fault.OVERLOADED,
}
_BY_TYPE: Final[Mapping[str, int]] = {
    "BadRequestError": 400,
    "Bad Request": 400,
    "invalid_request_error": 400,
    "NotFoundError": 404,
    "Service Unavailable": 503,
    "SERVICE_UNAVAILABLE": 503,
    "overloaded_error": 503,
}
_CARRIED_STATUS = re.compile(r"^([45]\d\d): ")  # SGLang Responses: 400 with "503: The request queue is full."
_CONTEXT = (
    re.compile(r"contains (?:at least )?(?P<prompt>\d+) input tokens"),
    re.compile(r"[Tt]he input \((?P<prompt>\d+) tokens\) is longer than the model's context length"),
    re.compile(r"(?P<prompt>\d+) tokens from the input messages and (?P<output>\d+) tokens for the completion"),
    re.compile(r"passed (?P<prompt>\d+) input tokens and requested (?P<output>\d+) output tokens"),
    re.compile(r"\((?P<prompt>\d+) in the messages, (?P<output>\d+) in the completion\)"),
    re.compile(r"prompt \(length (?P<prompt>\d+)\) .*longer than the maximum model length"),
)
_LIMIT = re.compile(r"(?:context length|model length)\D{0,20}?(\d+)")
_TOO_LONG = re.compile(r"maximum context length|context length|longer than the (?:model|maximum)")
_OUTPUT_TOO_BIG = re.compile(r"^(max_\w*tokens)=(\d+) cannot be greater than max_model_len=(\d+)")
_UNKNOWN_MODEL = re.compile(r"^The model [`'].*[`'] does not exist")


@dataclass(frozen=True, slots=True)
class ErrorBody:
    """An error as the engine spelled it. `status` is the one inside the body, 0 when there is none."""

    message: str
    type: str = ""
    param: str | None = None
    status: int = 0
    code: str | None = None


def read_error(body: bytes) -> ErrorBody | None:
    """The error in a JSON body, or None when the body is no JSON or carries no error."""
    try:
        data = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return find_error(data) if isinstance(data, dict) else None


def find_error(data: Mapping[str, object]) -> ErrorBody | None:
    """The error in a decoded body, or None."""
    error = data.get("error")
    if isinstance(error, dict):
        return _body(error)
    if isinstance(error, str):
        return ErrorBody(error)
    if data.get("object") == "error":
        return _body(data)
    if "detail" in data and "choices" not in data:
        return _detail(data["detail"])
    response = data.get("response")
    if data.get("type") == "response.failed" and isinstance(response, dict):
        return find_error(response) or ErrorBody("the response failed", status=500)
    return _native_abort(data)


def _body(error: Mapping[str, object]) -> ErrorBody:
    code, kind, param = error.get("code"), error.get("type"), error.get("param")
    kind = kind if isinstance(kind, str) else ""
    status = code if isinstance(code, int) else _BY_TYPE.get(kind, int(kind) if kind.isdecimal() else 0)
    return ErrorBody(
        message=str(error.get("message") or ""),
        type=kind,
        param=param if isinstance(param, str) else None,
        status=status,
        code=code if isinstance(code, str) else None,
    )


def _detail(detail: object) -> ErrorBody:
    if isinstance(detail, str):
        return ErrorBody(detail)
    # FastAPI's own 422: a list of {"loc", "msg", "input"}.
    found = (
        [(item.get("loc"), item.get("msg")) for item in detail if isinstance(item, dict)]
        if isinstance(detail, list)
        else []
    )
    lines = "; ".join(f"{'.'.join(str(part) for part in loc or () if part != 'body')}: {msg}" for loc, msg in found)
    first = found[0][0] if found else None
    return ErrorBody(lines or "the request was refused", param=".".join(str(part) for part in first) if first else None)


def _native_abort(data: Mapping[str, object]) -> ErrorBody | None:
    meta = data.get("meta_info")
    reason = meta.get("finish_reason") if isinstance(meta, dict) else None
    if not isinstance(reason, dict) or reason.get("type") != "abort":
        return None
    status = reason.get("status_code")
    return ErrorBody(str(reason.get("message") or "aborted"), status=status if isinstance(status, int) else 500)


def classify(error: ErrorBody, status: int, *, steering: re.Pattern[str], retry_after: str = "") -> EngineFailure:
    """One failure from an error body and the HTTP status (200 for an error inside a stream).

    `steering` matches messages about fields that only the gateway sets (request id, rank, bootstrap room): a 400 over
    one of those is not the client's fault.
    """
    carried = _CARRIED_STATUS.match(error.message)
    if carried:
        error = replace(error, message=error.message[carried.end() :], status=int(carried[1]))
    inner = error.status or _BY_TYPE.get(error.type, 0) or (500 if status < 400 else status)
    # A status inside the body tells more than the outer one in a stream (200) and in SGLang's Responses (400).
    effective = inner if status < 400 or carried else status
    param = tidy_param(error.param) or parameter(error.message)
    too_long = _context_failure(error.message, effective)
    if too_long is not None:
        return too_long
    fault = _fault(effective, error, steering)
    message, located = validation(error.message) or (scrub(error.message), None)
    return EngineFailure(
        fault=fault,
        message=message or f"the engine answered {effective}",
        status=effective,
        param=param or located,
        code=_code(error, effective, fault),
        retry_after_s=seconds(retry_after),
        numbers=_output_numbers(error.message),
    )


def opaque(status: int, content_type: str, retry_after: str = "") -> EngineFailure:
    """A failure whose body is no error we know (HTML of a proxy, empty): nothing of the body is repeated."""
    kind = content_type.partition(";")[0].strip() or "no content type"
    return EngineFailure(
        fault=_default(status),
        message=f"the engine answered {status} ({kind})",
        status=status,
        retry_after_s=seconds(retry_after),
    )


def seconds(retry_after: str) -> float | None:
    """`Retry-After` in delta-seconds, at most an hour; a date or anything else is None."""
    value = retry_after.strip()
    return min(float(value), 3600.0) if value.replace(".", "", 1).isdecimal() else None


def _fault(status: int, error: ErrorBody, steering: re.Pattern[str]) -> Fault:
    if status == 400 and steering.search(error.message):
        return Fault.ENGINE
    if status == 404 and error.param in ("response_id", "previous_response_id"):
        return Fault.CLIENT
    return _default(status)


def _default(status: int) -> Fault:
    return _BY_STATUS.get(status, Fault.CLIENT if 400 <= status < 500 else Fault.ENGINE)


def _code(error: ErrorBody, status: int, fault: Fault) -> str | None:
    if fault is Fault.OVERLOADED:
        return "server_overloaded"
    if status == 404:
        return "model_not_found" if _UNKNOWN_MODEL.match(error.message) else "not_found"
    return error.code


def _context_failure(message: str, status: int) -> EngineFailure | None:
    """A prompt (or prompt + output) beyond the window. `numbers` is (prompt, limit) or (prompt, output, limit)."""
    if status not in (400, 413, 422, 500) or not _TOO_LONG.search(message):
        return None
    limit = _LIMIT.search(message)
    if limit is None:
        return None
    # vLLM names a prompt cut at limit + 1, or only its characters: then "one more than fits" is all that is known.
    numbers = [int(limit[1]) + 1, int(limit[1])]
    for pattern in _CONTEXT:
        found = pattern.search(message)
        if found:
            numbers = [*(int(count) for count in found.groups()), int(limit[1])]
            break
    text = scrub(message)
    return EngineFailure(Fault.CLIENT, text, status=400, code="context_length_exceeded", numbers=tuple(numbers))


def _output_numbers(message: str) -> tuple[int, ...]:
    found = _OUTPUT_TOO_BIG.match(message)
    return (int(found[2]), int(found[3])) if found else ()
