"""Responses over a WebSocket: one text frame asks for one response, whose events come back as text frames."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import msgspec
from aiohttp import WSMessage, WSMsgType, hdrs, web

from backends.supervisor import Supervisor
from gateway.caller import allowed_origin
from gateway.dialects import openai_errors
from gateway.dialects.base import Usage
from gateway.dialects.fields import invalid, read_object
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions
from gateway.dialects.responses_resource import resource, usage_record
from gateway.dialects.sse import named, payload
from gateway.errors import Cause, GatewayError
from gateway.exchange import Exchange
from gateway.pipeline import Pipeline
from gateway.responses.library import Library
from gateway.responses.record import CONTINUABLE, Item, Record
from gateway.responses.streams import DetachedStream
from gateway.responses.turn import Turn
from gateway.state.base import StateStore

_IDLE_S = 3600.0  # without a request
_WAITING = 4  # requests that may come while one is answered; a client that sends more waits
_GOING_AWAY = 1001
_ENDS = frozenset({WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED, WSMsgType.ERROR})
Inbox = asyncio.Queue[WSMessage | None]  # None: the client has left
_encode = msgspec.json.encode


class Latest:
    """The last response of one connection, which it can continue without a store."""

    __slots__ = ("history", "record")

    def __init__(self) -> None:
        self.record: Record | None = None
        self.history: list[Item] = []  # up to and with that response

    def remember(self, record: Record, history: list[Item]) -> None:
        """Replace what was there."""
        self.record, self.history = record, history

    def forget(self) -> None:
        """Keep nothing."""
        self.record, self.history = None, []

    def has(self, response_id: str | None) -> bool:
        """Whether that is the one."""
        return self.record is not None and self.record.id == response_id


class SocketTurn(Turn):
    """A turn on a connection: it may continue the connection's latest response, stored or not."""

    def __init__(self, store: StateStore, latest: Latest, *, generate: bool) -> None:
        """Without `generate` the turn is only taken in: its response is empty."""
        super().__init__(store)
        self._latest = latest
        self._generate = generate
        self._history_items: list[Item] = []
        self._empty: dict[str, Any] | None = None

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`. `previous_response_id` may be used whether there is a store or not."""
        return super().decode_request(body, headers, replace(options, store=True))

    async def recall(self, x: Exchange, options: DecodeOptions) -> bool:
        """See `Keeper.recall`."""
        await super().recall(x, options)
        if self._generate:
            return False
        self._empty = resource(x.asked, x.ids, "completed", [], usage=usage_record(Usage()))
        started = resource(x.asked, x.ids, "in_progress", [])
        for number, (kind, response) in enumerate((("created", started), ("completed", self._empty))):
            event = {"type": f"response.{kind}", "sequence_number": number, "response": response}
            x.stream.begin(b"", b"", named(b"", _encode(event)))
        x.stream.end()
        return True

    async def keep(self, x: Exchange) -> None:
        """See `Keeper.keep`."""
        await super().keep(x)
        made = self.resource
        if made is None or made["status"] not in CONTINUABLE:
            if self._previous is not None and self._latest.has(self._previous.id):
                self._latest.forget()
            return
        record = self._record(x, made)
        history = [*self._history_items, *record.turn]
        # What one connection may hold is what one request may.
        if len(_encode(history)) <= x.runtime.config.listen.body_limit_bytes:
            self._latest.remember(record, history)
        else:
            self._latest.forget()

    @property
    def resource(self) -> dict[str, Any] | None:
        """The final resource; None while there is none."""
        return self._empty or super().resource

    def _needs_store(self, asked: Request) -> bool:
        return asked.referring or not (
            asked.previous_response_id is None or self._latest.has(asked.previous_response_id)
        )

    async def _find_previous(self, asked: Request, library: Library) -> Record | None:
        if self._latest.has(asked.previous_response_id):
            return self._latest.record
        return await super()._find_previous(asked, library)

    async def _history(self, library: Library, limit_bytes: int) -> list[Item]:
        if self._previous is not None and self._latest.has(self._previous.id):
            self._history_items = self._latest.history
        else:
            self._history_items = await super()._history(library, limit_bytes)
        return self._history_items


class Sockets:
    """Upgrades GET /v1/responses and serves what comes."""

    def __init__(self, pipeline: Pipeline, store: StateStore, supervisor: Supervisor) -> None:
        self._pipeline = pipeline
        self._store = store
        self._supervisor = supervisor

    async def serve(self, request: web.BaseRequest, _: str) -> web.StreamResponse:
        """GET /v1/responses: 426 for whoever asks for no WebSocket, or where they are switched off."""
        runtime = self._pipeline.runtime
        listen = runtime.config.listen
        runtime.auth.identify(request.headers.get(hdrs.AUTHORIZATION), request.headers.get("X-Api-Key"))
        socket = web.WebSocketResponse(max_msg_size=listen.body_limit_bytes, compress=False)
        if not listen.websockets or not socket.can_prepare(request):
            raise GatewayError(
                Cause.UPGRADE_REQUIRED, "use POST, or upgrade to a WebSocket", headers=((hdrs.UPGRADE, "websocket"),)
            )
        # A browser lets any page open a socket: only the answer to this tells it no.
        if hdrs.ORIGIN in request.headers and not allowed_origin(request.headers, listen.cors.origins):
            raise GatewayError(Cause.FORBIDDEN, "this origin may not open a WebSocket")
        await socket.prepare(request)
        inbox: Inbox = asyncio.Queue(_WAITING)
        listening = self._supervisor.spawn(_listen(socket, inbox), "websocket frames")
        try:
            with suppress(ConnectionError):  # the client left while something was being sent
                await self._converse(request, socket, inbox, listening)
                await socket.close(code=_GOING_AWAY)
        finally:
            listening.cancel()
        return socket

    async def _converse(
        self, request: web.BaseRequest, socket: web.WebSocketResponse, inbox: Inbox, listening: asyncio.Task[None]
    ) -> None:
        latest = Latest()
        while not self._pipeline.draining and (message := await _next(inbox)) is not None:
            try:
                body, generate = _request(message)
            except GatewayError as error:
                await socket.send_str(_error(error.cause.status, openai_errors.body(error)))
                continue
            turn = SocketTurn(self._store, latest, generate=generate)
            await self._respond(request, socket, body, turn, listening)

    async def _respond(
        self,
        request: web.BaseRequest,
        socket: web.WebSocketResponse,
        body: bytes,
        turn: SocketTurn,
        listening: asyncio.Task[None],
    ) -> None:
        stream = DetachedStream()
        task = self._supervisor.spawn(self._exchange(request, stream, body, turn), "websocket exchange")

        def give_up(_: asyncio.Task[None]) -> None:
            task.cancel()

        listening.add_done_callback(give_up)
        try:
            async for block in events_of(stream):
                if turn.resource is not None:  # whoever reads the end finds the response stored
                    await asyncio.wait({task})
                await socket.send_str(payload(block).decode())
            await asyncio.wait({task})
            if stream.refusal:
                await socket.send_str(_error(stream.status, stream.refusal))
        finally:
            listening.remove_done_callback(give_up)
            stream.leave()
            task.cancel()

    async def _exchange(self, request: web.BaseRequest, stream: DetachedStream, body: bytes, turn: SocketTurn) -> None:
        try:
            await self._pipeline.exchange(request, turn, keeper=turn, stream=stream, body=body)
        finally:
            stream.close()


async def _listen(socket: web.WebSocketResponse, inbox: Inbox) -> None:
    """Pass on what comes, and end when the client has left, which may be in the middle of an answer."""
    while (message := await socket.receive()).type not in _ENDS:
        await inbox.put(message)
    await inbox.put(None)


async def _next(inbox: Inbox) -> WSMessage | None:
    """What comes next; None when the client has left, or says nothing for too long."""
    try:
        async with asyncio.timeout(_IDLE_S):
            return await inbox.get()
    except TimeoutError:
        return None


def _request(message: WSMessage) -> tuple[bytes, bool]:
    """The body that a frame stands for, and whether to generate. Raises GatewayError."""
    if message.type is not WSMsgType.TEXT:
        raise GatewayError(Cause.BAD_REQUEST, "expected a text frame")
    fields = read_object(message.data.encode())
    if bytes(fields.pop("type", b"")) != b'"response.create"':
        raise invalid("type", "expected response.create")
    if bytes(fields.pop("background", b"false")) == b"true":
        raise GatewayError(Cause.UNSUPPORTED_PARAMETER, "background is not served here", param="background")
    generate = bytes(fields.pop("generate", b"true")) != b"false"
    return _encode(fields | {"stream": msgspec.Raw(b"true")}), generate


def _error(status: int, body: bytes) -> str:
    error = msgspec.json.decode(body)["error"]
    return _encode({"type": "error", "status": status, "error": error}).decode()


async def events_of(stream: DetachedStream) -> AsyncIterator[bytes]:
    """The events of an answer one by one until it ends, as blocks of SSE without the blank line."""
    while True:
        await stream.arrival()
        for block in stream.take():
            yield block
        if stream.ended and not stream.pending:
            return
