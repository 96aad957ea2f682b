"""Reasoning kept for clients that do not bring it back.

The chat templates of reasoning models render the reasoning of earlier turns. A client that drops it changes the
prompt from that turn on: the prefix cache misses, and agents work worse. So reasoning that led to tool calls is
kept under their ids, and given back to the engine with the turn that has those calls and no reasoning.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec
import structlog
from msgspec import Raw

from backends.contracts import DialectName, EngineFailure
from gateway.dialects.base import Transcoder, Usage
from gateway.dialects.decoder import EngineDecoder
from gateway.dialects.events import Event, Think, ToolOpen
from gateway.dialects.ids import Ids
from gateway.dialects.model import ReasoningPart, Request, ToolCallPart, Turn
from gateway.dialects.registry import DecodeOptions, Dialect, EngineRequest
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import GatewayError
from gateway.exchange import Exchange
from gateway.state.base import Quota, StateStore, StateTooLarge, StateUnavailable

log = structlog.get_logger("headrace.vault")

_LIMIT = 256 * 1024  # characters of reasoning
_CALLS = 256  # that are looked up for one request, the latest
_ID_LIMIT = 128  # characters
_Message = dict[str, Any]
Give = Callable[[str], None]


class Vaulted:
    """A dialect for one exchange, and the exchange's `Keeper`."""

    def __init__(self, inner: Dialect, store: StateStore) -> None:
        self.name: DialectName = inner.name
        self._inner = inner
        self._store = store
        self._tap: Tap | None = None

    # --- Dialect ---

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        return self._inner.decode_request(body, headers, options)

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """See `Dialect.encode_engine_request`."""
        return self._inner.encode_engine_request(request, target)

    def transcoder(self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal) -> Transcoder:
        """See `Dialect.transcoder`."""
        inner = self._inner.transcoder(request, sent, target, ids, seal)
        if not request.tools:
            return inner
        self._tap = Tap(inner, EngineDecoder(target.frame_failure, ids.call), streamed=sent.stream)
        return self._tap

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return self._inner.encode_error(error, request_id)

    # --- Keeper ---

    async def recall(self, x: Exchange, options: DecodeOptions) -> bool:  # noqa: ARG002
        """See `Keeper.recall`. Without a store the request goes on as it came."""
        messages = _chat_messages(x.asked)
        wanted = dict([*_lacking_turns(x.asked.turns), *_lacking_messages(messages)][-_CALLS:])
        if not wanted:
            return False
        try:
            entries = await self._store.get_many([_key(x, call_id) for call_id in wanted])
        except StateUnavailable:
            return False
        given = 0
        for give, entry in zip(wanted.values(), entries, strict=True):
            if entry is not None:
                give(entry.value.decode())
                given += 1
        if given and messages:
            x.asked.raw["messages"] = Raw(msgspec.json.encode(messages))
            x.asked.body = msgspec.json.encode(x.asked.raw)
            x.asked.messages.reasoning = True
        return False

    async def keep(self, x: Exchange) -> None:
        """See `Keeper.keep`."""
        tap = self._tap
        if tap is None or not tap.calls or not 0 < sum(map(len, tap.thoughts)) <= _LIMIT:
            return
        config = x.runtime.config.reasoning
        quota = Quota(f"vault:{x.identity.name}", config.vault_bytes_per_tenant)
        value = "".join(tap.thoughts).encode()
        try:
            for call_id in tap.calls:
                await self._store.put(_key(x, call_id), value, config.vault_ttl_s, quota=quota)
        except (StateUnavailable, StateTooLarge) as error:
            log.warning("reasoning not kept", reason=type(error).__name__)


def _key(x: Exchange, call_id: str) -> str:
    # The model's name is part of it: another model's reasoning is not given back.
    return f"vault:{call_id[:_ID_LIMIT].replace(' ', '_')} {x.model.name} {x.identity.name}"


def _chat_messages(asked: Request) -> list[_Message]:
    """The messages of a Chat request; none for one that was read into turns."""
    raw = asked.raw.get("messages") if not asked.turns else None
    return msgspec.json.decode(raw) if raw is not None else []


def _lacking_turns(turns: list[Turn]) -> Iterator[tuple[str, Give]]:
    """Assistant turns with calls and without reasoning: the first call's id, and how to give them some."""
    for turn in turns:
        calls = [part for part in turn.parts if isinstance(part, ToolCallPart)]
        if calls and not any(isinstance(part, ReasoningPart) for part in turn.parts):
            yield calls[0].call_id, _into_turn(turn)


def _into_turn(turn: Turn) -> Give:
    return lambda text: turn.parts.insert(0, ReasoningPart(text))


def _lacking_messages(messages: list[_Message]) -> Iterator[tuple[str, Give]]:
    """The same for Chat."""
    for message in messages:
        calls = message.get("tool_calls") if message["role"] == "assistant" else None  # of others it is not validated
        if calls and not message.get("reasoning_content") and not message.get("reasoning"):
            yield str(calls[0].get("id")), _into_message(message)


def _into_message(message: _Message) -> Give:
    return lambda text: message.update(reasoning=text)


class Tap:
    """A transcoder that also notes the reasoning and the calls of the engine's first choice."""

    def __init__(self, inner: Transcoder, decoder: EngineDecoder, *, streamed: bool) -> None:
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self.thoughts: list[str] = []
        self.calls: list[str] = []
        self._inner = inner
        self._decoder = decoder
        self._whole: list[bytes] | None = None if streamed else []

    def feed(self, data: bytes) -> bytes:
        """See `Transcoder.feed`."""
        if self._whole is not None:
            self._whole.append(data)
        else:
            self._note(self._decoder.feed(data))
        return self._through(self._inner.feed(data))

    def eof(self) -> bytes:
        """See `Transcoder.eof`."""
        if self._whole is not None:
            self._note(self._decoder.whole(b"".join(self._whole)))
        return self._through(self._inner.eof())

    def fail(self, error: GatewayError) -> bytes:
        """See `Transcoder.fail`."""
        return self._inner.fail(error)

    def keepalive(self) -> bytes:
        """See `Transcoder.keepalive`."""
        return self._inner.keepalive()

    def _note(self, events: list[Event]) -> None:
        for event in events:
            if isinstance(event, Think) and event.choice == 0:
                self.thoughts.append(event.text)
            elif isinstance(event, ToolOpen) and event.choice == 0:
                self.calls.append(event.id)

    def _through(self, out: bytes) -> bytes:
        inner = self._inner
        self.failure, self.started, self.finished = inner.failure, inner.started, inner.finished
        self.abort_engine, self.usage, self.finish = inner.abort_engine, inner.usage, inner.finish
        return out
