"""One exchange on /v1/responses joined to what is stored: earlier turns before it, its answer after."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import structlog

from backends.contracts import DialectName
from gateway.dialects.base import Transcoder
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions, EngineRequest
from gateway.dialects.responses import Responses, ResponsesTranscoder
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import Cause, GatewayError
from gateway.exchange import Exchange
from gateway.responses.library import Library, references
from gateway.responses.record import Item, Record
from gateway.responses.streams import HeldStream
from gateway.state.base import StateStore, StateUnavailable

log = structlog.get_logger("headrace.responses")


def unavailable() -> GatewayError:
    """What a client is told whose request cannot be served without the store."""
    return GatewayError(Cause.OVERLOADED, "stored responses cannot be reached now", retry_after_s=1.0)


class Turn:
    """The Responses dialect for one exchange, and the exchange's `Keeper`."""

    name: DialectName = "responses"

    def __init__(self, store: StateStore, stream: HeldStream | None = None) -> None:
        """`stream` is held back at its end until the response is stored."""
        self._store = store
        self._stream = stream
        self._codec = Responses()
        self._transcoder: ResponsesTranscoder | None = None
        self._previous: Record | None = None

    # --- Dialect ---

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        return self._codec.decode_request(body, headers, options)

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """See `Dialect.encode_engine_request`."""
        return self._codec.encode_engine_request(request, target)

    def transcoder(self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal) -> Transcoder:
        """See `Dialect.transcoder`. The last one has the resource that is stored."""
        self._transcoder = self._codec.transcoder(request, sent, target, ids, seal)
        return self._transcoder

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return self._codec.encode_error(error, request_id)

    # --- Keeper ---

    async def recall(self, x: Exchange, options: DecodeOptions) -> bool:
        """See `Keeper.recall`."""
        asked = x.asked
        library = self._library(x)
        try:
            await self._check_store(asked, library)
            self._previous = await self._find_previous(asked, library)
            history = await self._history(library, x.runtime.config.listen.body_limit_bytes)
            asked.items = await _resolved(asked, library)
        except StateUnavailable:
            raise unavailable() from None
        if history or asked.referring:
            self._codec.extend(asked, history, options)
            size = asked.traits.prompt_bytes + len(msgspec.json.encode(history))
            asked.traits = msgspec.structs.replace(asked.traits, prompt_bytes=size)
        previous = self._previous
        x.home = previous.home if previous else ""
        if asked.session is None and asked.cache_key is None and (previous or asked.store):
            # The conversation's first id names the session: its turns go where its KV lies, without a home too.
            asked.session = [*previous.chain, previous.id][0] if previous else x.ids.answer
        if asked.store and self._stream is not None:
            self._stream.hold_from(lambda: self.resource is not None)
        return False

    async def keep(self, x: Exchange) -> None:
        """See `Keeper.keep`."""
        try:
            if self.resource is not None and x.asked.store:
                await self._library(x).save(self._record(x, self.resource))
        except StateUnavailable:
            log.warning("response not stored", response=x.ids.answer)
        finally:
            if self._stream is not None:
                self._stream.release()

    @property
    def resource(self) -> dict[str, Any] | None:
        """The final resource; None while there is none."""
        return self._transcoder.resource if self._transcoder is not None else None

    def _library(self, x: Exchange) -> Library:
        return Library(self._store, x.runtime.config.state, x.identity.name)

    async def _check_store(self, asked: Request, library: Library) -> None:
        """Without a store that answers, a request that could do without it is served, and told so."""
        if asked.background and not asked.store:
            raise GatewayError(Cause.UNSUPPORTED_VALUE, "background needs store: true", param="background")
        needed = self._needs_store(asked)
        if not (asked.store or needed) or await library.ready():
            return
        if needed and library.enabled:
            raise unavailable()
        forget(asked)

    def _needs_store(self, asked: Request) -> bool:
        return asked.background or asked.referring or asked.previous_response_id is not None

    async def _find_previous(self, asked: Request, library: Library) -> Record | None:
        return await library.previous(asked.previous_response_id) if asked.previous_response_id is not None else None

    async def _history(self, library: Library, limit_bytes: int) -> list[Item]:
        return await library.history(self._previous, limit_bytes) if self._previous is not None else []

    def _record(self, x: Exchange, resource: dict[str, Any]) -> Record:
        previous = self._previous
        attempts = x.record.attempts
        return Record(
            response=resource,
            items=x.asked.items,
            chain=[*previous.chain, previous.id] if previous else [],
            home=attempts[-1].replica.id if attempts else "",
        )


def forget(asked: Request) -> None:
    """Serve this request without storing it; its reasoning goes out sealed, as it does for `store: false`."""
    asked.store = asked.echo["store"] = False
    asked.reasoning.encrypted = True


async def _resolved(asked: Request, library: Library) -> list[Item]:
    """The input items with those in place that were only named. Raises GatewayError for an unknown name."""
    if not asked.referring:
        return asked.items
    names = references(asked.items)
    found = dict(zip(names, await library.items(names), strict=True))
    items = []
    for position, item in enumerate(asked.items):
        if item.get("type") == "item_reference":
            named = found[str(item.get("id"))]
            if named is None:
                detail = f"Item with id {str(item.get('id'))[:128]!r} not found."
                raise GatewayError(Cause.BAD_REQUEST, detail, param=f"input[{position}]", code="item_not_found")
            items.append(named)
        else:
            items.append(item)
    return items
