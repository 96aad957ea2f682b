"""Hooks for tests: exact answers for the next requests, and what the requests were."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any

import msgspec
from aiohttp import web


class Step(msgspec.Struct, forbid_unknown_fields=True):
    """One scripted answer: exactly one of `json`, `sse` and `raw` is its body; none of them is an empty body.

    `sse` items are payloads, sent as `data: <payload>` events one by one, `gap_s` apart; nothing is added, not even
    [DONE]. `raw` is sent as it is. `hold` keeps the connection open without another byte until the client goes.
    """

    status: int = 200
    headers: dict[str, str] = {}
    json: Any = None
    sse: list[str] | None = None
    raw: str | None = None
    delay_s: float = 0.0
    gap_s: float = 0.0
    hold: bool = False


class Script:
    """Steps still to play, and the last requests. Generation requests take one step each, in order of arrival."""

    def __init__(self, keep: int) -> None:
        self._steps: deque[Step] = deque()
        self._requests: deque[dict[str, Any]] = deque(maxlen=keep)

    def extend(self, body: bytes) -> int:
        """Queue the steps of a JSON list; how many wait now. Raises msgspec.ValidationError naming what is wrong."""
        self._steps.extend(msgspec.json.decode(body, type=list[Step]))
        return len(self._steps)

    def take(self) -> Step | None:
        """The next step, or None when there is no script."""
        return self._steps.popleft() if self._steps else None

    def record(self, request: web.BaseRequest, body: bytes) -> None:
        """Remember a request."""
        self._requests.append(
            {"method": request.method, "path": request.path_qs, "headers": _headers(request.headers), "body": body}
        )

    def requests(self) -> list[dict[str, Any]]:
        """The requests, oldest first: method, path, headers (lower case), body (JSON where it is, else text)."""
        return [{**request, "body": _readable(request["body"])} for request in self._requests]

    def clear(self) -> None:
        """Forget steps and requests."""
        self._steps.clear()
        self._requests.clear()


async def play(step: Step, request: web.BaseRequest) -> web.StreamResponse:
    """Answer a request by its step."""
    if step.delay_s:
        await asyncio.sleep(step.delay_s)
    response = web.StreamResponse(status=step.status, headers=step.headers)
    chunks = _chunks(step, response)
    await response.prepare(request)
    for at, chunk in enumerate(chunks):
        if at and step.gap_s:
            await asyncio.sleep(step.gap_s)
        await response.write(chunk)
    if step.hold:
        await asyncio.Event().wait()
    await response.write_eof()
    return response


def _chunks(step: Step, response: web.StreamResponse) -> list[bytes]:
    if step.sse is not None:
        response.headers.setdefault("content-type", "text/event-stream; charset=utf-8")
        return [f"data: {payload}\n\n".encode() for payload in step.sse]
    response.headers.setdefault("content-type", "application/json")
    if step.raw is not None:
        return [step.raw.encode()]
    if step.json is None:
        return []
    body = msgspec.json.encode(step.json)
    if not step.hold:
        response.content_length = len(body)
    return [body]


def _headers(headers: Mapping[str, str]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


def _readable(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace")
