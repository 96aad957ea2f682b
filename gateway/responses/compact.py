"""`/v1/responses/compact`: a conversation becomes its last user messages and a sealed summary of all of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from backends.contracts import EngineFailure, Fault
from gateway.dialects.base import Transcoder, Usage
from gateway.dialects.collect import Collected
from gateway.dialects.events import Counted, Event
from gateway.dialects.ids import Ids
from gateway.dialects.model import Format, Request, TextPart, ToolChoice
from gateway.dialects.model import Turn as Said
from gateway.dialects.registry import DecodeOptions, EngineRequest
from gateway.dialects.responses_resource import usage_record
from gateway.dialects.rewriting import Rewriting
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import GatewayError
from gateway.exchange import Exchange
from gateway.responses.items import listed
from gateway.responses.library import Library
from gateway.responses.record import Item
from gateway.responses.turn import Turn

_KEPT_BYTES = 80_000  # of user messages: about as many tokens as Codex keeps when it compacts by itself
_ASK = (
    "The conversation above is about to be replaced by a summary that you write now. Another assistant will continue "
    "from that summary alone, so state the goals and constraints of the user, what was done and learnt (with names of "
    "files, functions, commands and exact values that matter), decisions and their reasons, what is unfinished, and "
    "the next steps. Write only the summary, call no tools."
)


class CompactTurn(Turn):
    """A turn whose answer is a summary. The prompt begins as the conversation does: its KV is there already."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._items: list[Item] = []

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        request = super().decode_request(body, headers, options)
        request.stream = request.store = request.background = False
        request.stops, request.format = (), Format()
        request.tool_choice = ToolChoice("none")
        return request

    async def recall(self, x: Exchange, options: DecodeOptions) -> bool:
        """See `Keeper.recall`."""
        await super().recall(x, options)
        self._items += x.asked.items
        x.asked.turns.append(Said("user", [TextPart(_ASK)]))
        return False

    async def _history(self, library: Library, limit_bytes: int) -> list[Item]:
        history = await super()._history(library, limit_bytes)
        self._items = list(history)
        return history

    def transcoder(self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal) -> Transcoder:
        """See `Dialect.transcoder`."""
        family = target.family or target.model
        body = CompactionBody(ids, _last_messages(self._items), lambda summary: seal.close(summary, family))
        return Compaction(
            body, request, target, ids, upstream_stream=sent.stream, hide_reasoning=sent.hide_reasoning, stops=()
        )


class Compaction(Rewriting):
    """The transcoder of a compaction: an answer without a summary is a failure."""

    def __init__(self, body: CompactionBody, *args: Any, **options: Any) -> None:
        super().__init__(body, *args, **options)
        self._body = body

    def eof(self) -> bytes:
        """See `Transcoder.eof`."""
        out = super().eof()
        if self.failure is None and not self._body.sealed:
            self.failure = EngineFailure(Fault.TRUNCATED, "the model wrote no summary that can be kept")
        return out if self.failure is None else b""


class CompactionBody:
    """Collects the summary and writes one `response.compaction`."""

    def __init__(self, ids: Ids, kept: list[Item], seal: Callable[[str], str]) -> None:
        """`kept` are the messages that stay; `seal` closes the summary, "" when it is too long."""
        self.sealed = ""
        self._ids = ids
        self._kept = kept
        self._seal = seal
        self._whole = Collected()

    def opening(self) -> bytes:
        """Nothing: the answer is written when it is whole."""
        return b""

    def event(self, event: Event) -> bytes:
        """Collect."""
        if not isinstance(event, Counted):
            self._whole.take(event)
        return b""

    def closing(self, usage: Usage) -> bytes:
        """The whole."""
        summary = self._whole.joined("text").strip()
        self.sealed = self._seal(summary) if summary else ""
        compaction = {"id": self._ids.new("cmp_", 48), "type": "compaction", "encrypted_content": self.sealed}
        return msgspec.json.encode({
            "id": self._ids.answer,
            "object": "response.compaction",
            "created_at": self._ids.created,
            "output": listed([*self._kept, compaction], self._ids.answer),
            "usage": usage_record(usage),
        })  # fmt: skip

    def failing(self, error: GatewayError) -> bytes:
        """Never reached: nothing was committed."""
        raise error

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""


def _last_messages(items: list[Item]) -> list[Item]:
    """The last messages of the user that fit into `_KEPT_BYTES`, in order."""
    kept: list[Item] = []
    room = _KEPT_BYTES
    for item in reversed(items):
        if item.get("role") != "user":
            continue
        room -= len(msgspec.json.encode(item))
        if room < 0:
            break
        kept.append(item)
    return kept[::-1]
