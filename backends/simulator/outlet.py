"""The last step to the client: server-sent events and bodies, and the faults that strike there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager

from aiohttp import web

from backends.simulator.faults import Fault
from backends.simulator.wire import DONE

HEADERS: Mapping[str, str] = {"server": "uvicorn", "vary": "Origin"}
_FRAME_FAULTS = frozenset({"reset_after", "stall_after", "truncate_after", "error_frame", "bad_utf8"})
_BAD = b"\xff\xfe\xc3"


class CutError(Exception):
    """The connection was ended, on purpose or by the client; there is nothing more to send."""


class Outlet:
    """One event stream. Without a fault, what is sent together is written together."""

    def __init__(
        self, request: web.BaseRequest, fault: Fault | None, error_frame: bytes, headers: Mapping[str, str]
    ) -> None:
        self.response = web.StreamResponse(headers={**HEADERS, **headers})
        self.response.content_type = "text/event-stream"
        self.response.charset = "utf-8"
        self._request = request
        self._fault = fault if fault is not None and fault.name in _FRAME_FAULTS else None
        self._error_frame = error_frame
        self._frames = 0

    async def open(self) -> None:
        """Send status and headers, once. Raises CutError when the client has gone, as `send` and `close` do."""
        with _to_client():
            if not self.response.prepared:
                await self.response.prepare(self._request)

    async def send(self, payloads: Iterable[bytes]) -> None:
        """Send payloads as events. Raises CutError when a fault ended the stream."""
        await self.open()
        with _to_client():
            if self._fault is None:
                data = b"".join([b"data: " + payload + b"\n\n" for payload in payloads])
                if data:
                    await self.response.write(data)
                return
            for payload in payloads:
                await self._send_one(self._fault, payload)

    async def close(self) -> None:
        """Send the final [DONE] and end the stream."""
        await self.send((DONE,))
        with _to_client():
            await self.response.write_eof()

    async def _send_one(self, fault: Fault, payload: bytes) -> None:
        if fault.name == "bad_utf8":
            payload = _spoil(payload) if self._frames == 1 else payload
        elif self._frames >= fault.value:
            await self._strike(fault)
        self._frames += 1
        await self.response.write(b"data: " + payload + b"\n\n")

    async def _strike(self, fault: Fault) -> None:
        if fault.name == "reset_after":
            cut(self._request)
        elif fault.name == "stall_after":
            await asyncio.Event().wait()
        else:
            if fault.name == "error_frame":
                await self.response.write(b"data: " + self._error_frame + b"\n\ndata: " + DONE + b"\n\n")
            await self.response.write_eof()
        raise CutError


async def send_body(
    request: web.BaseRequest, status: int, body: bytes, fault: Fault | None, headers: Mapping[str, str]
) -> web.StreamResponse:
    """Send a JSON body, or the beginning of one. Raises CutError when a fault ended the connection."""
    if fault is not None and fault.name == "bad_utf8":
        body = _spoil(body)
    if fault is None or fault.name not in ("reset_after", "stall_after", "truncate_after"):
        return web.Response(status=status, body=body, content_type="application/json", headers={**HEADERS, **headers})
    response = web.StreamResponse(status=status, headers={**HEADERS, **headers})
    response.content_type = "application/json"
    response.content_length = len(body)
    with _to_client():
        await response.prepare(request)
        await response.write(body[: len(body) // 2])
    if fault.name == "stall_after":
        await asyncio.Event().wait()
    cut(request, gently=fault.name == "truncate_after")
    raise CutError


def cut(request: web.BaseRequest, *, gently: bool = False) -> None:
    """End the connection under the answer: with a reset, or gently with an end of file."""
    if request.transport is not None:
        if gently:
            request.transport.close()
        else:
            request.transport.abort()


@contextmanager
def _to_client() -> Iterator[None]:
    """Writing while the client leaves. The server cancels a handler whose client has gone, but a moment later."""
    try:
        yield
    except ConnectionError:
        raise CutError from None


def _spoil(payload: bytes) -> bytes:
    """Put bytes that are not UTF-8 into the first text of a payload."""
    for field in (b'"content":"', b'"text":"', b'"reasoning":"', b'"reasoning_content":"', b'"arguments":"', b'"id":"'):
        if field in payload:
            return payload.replace(field, field + _BAD, 1)
    return payload + _BAD
