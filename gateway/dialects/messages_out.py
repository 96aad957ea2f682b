"""Answers in Messages. Strictly one block is open at a time, so calls that interleave are put one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from gateway.dialects import messages_errors
from gateway.dialects.base import Usage
from gateway.dialects.collect import Collected, Item
from gateway.dialects.events import End, Event, Refusal, Text, Think, ToolArgs, ToolOpen
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.sse import named
from gateway.dialects.tools import Origin, is_object, object_arguments
from gateway.errors import GatewayError

_encode = msgspec.json.encode
Block = Literal["thinking", "text", "tool_use"]
Step = Literal["stop", "start", "delta", "queue", "later", "drop"]

# What to do with a delta for one kind of block while another (or none) is open.
_STEPS: dict[tuple[Block | None, Block], tuple[Step, ...]] = {
    (None, "thinking"): ("start", "delta"),
    (None, "text"): ("start", "delta"),
    ("thinking", "thinking"): ("delta",),
    ("thinking", "text"): ("stop", "start", "delta"),
    ("text", "text"): ("delta",),
    ("text", "thinking"): ("stop", "start", "delta"),
    ("tool_use", "text"): ("later",),  # a text between calls follows them
    ("tool_use", "thinking"): ("drop",),
    (None, "tool_use"): ("start",),
    ("thinking", "tool_use"): ("stop", "start"),
    ("text", "tool_use"): ("stop", "start"),
    ("tool_use", "tool_use"): ("queue",),
}
_STOP = {
    "end": "end_turn",
    "tool": "tool_use",
    "stop_sequence": "stop_sequence",
    "length": "max_tokens",
    "context": "model_context_window_exceeded",
    "filter": "refusal",
    "cancelled": "end_turn",
    "error": "end_turn",
}


def usage_record(usage: Usage) -> dict[str, Any]:
    """Counts in Anthropic's sense: `input_tokens` is what was neither read from nor written to a cache."""
    record: dict[str, Any] = {"input_tokens": usage.prompt - (usage.cached or 0) - (usage.cache_write or 0)}
    if usage.cached is not None:
        record["cache_read_input_tokens"] = usage.cached
    if usage.cache_write is not None:
        record["cache_creation_input_tokens"] = usage.cache_write
    record["output_tokens"] = usage.completion
    if usage.reasoning:
        record["output_tokens_details"] = {"thinking_tokens": usage.reasoning}
    return record


def stop_fields(end: End, request: Request) -> dict[str, Any]:
    """`stop_reason` and `stop_sequence`, and details of a refusal."""
    reason = _STOP["length" if end.stop == "context" and not request.context_stop else end.stop]
    fields: dict[str, Any] = {"stop_reason": reason, "stop_sequence": end.sequence}
    if reason == "refusal":
        fields["stop_details"] = {"type": "refusal", "category": None, "explanation": None}
    return fields


class _Queued:
    """A call that waits for its turn."""

    __slots__ = ("opened", "pieces")

    def __init__(self, opened: ToolOpen) -> None:
        self.opened = opened
        self.pieces: list[str] = []


class MessagesStream:
    """The output state machine: `_STEPS` says what each delta does, given the block that is open."""

    def __init__(self, request: Request, ids: Ids, sign: Callable[[str], str]) -> None:
        """`sign` seals the text of a thinking block."""
        self._request = request
        self._ids = ids
        self._sign = sign
        self._open: Block | None = None
        self._index = -1
        self._thoughts: list[str] = []
        self._call: _Queued | None = None  # the call whose block is open
        self._queue: list[_Queued] = []
        self._later: list[str] = []
        self._end = End("end")

    def opening(self) -> bytes:
        """`message_start`; the true counts come with `message_delta`."""
        message: dict[str, Any] = {
            "id": self._ids.answer,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": 0, "output_tokens": 0},
        }
        return _event("message_start", {"message": message})

    def event(self, event: Event) -> bytes:
        """One canonical event."""
        if isinstance(event, Think):
            return self._step("thinking", event.text)
        if isinstance(event, Text | Refusal):
            return self._step("text", event.text)
        if isinstance(event, ToolOpen):
            return self._tool(_Queued(event))
        if isinstance(event, ToolArgs):
            return self._args(event)
        if isinstance(event, End):
            self._end = event
        return b""

    def closing(self, usage: Usage) -> bytes:
        """Close what is open, bring what waited, then `message_delta` and `message_stop`."""
        out = [self._stop()]
        for call in self._queue:
            out += [self._start_call(call), self._stop()]
        if self._later:
            out += [self._step("text", "".join(self._later)), self._stop()]
        if self._index < 0:  # clients look at content[0]
            out += [self._start("text"), self._stop()]
        delta = {"delta": stop_fields(self._end, self._request), "usage": usage_record(usage)}
        out += [_event("message_delta", delta), _event("message_stop", {})]
        return b"".join(out)

    def failing(self, error: GatewayError) -> bytes:
        """Close the open block; the error ends the stream."""
        return self._stop() + named(b"error", messages_errors.body(error, self._ids.request))

    def keepalive(self) -> bytes:
        """A ping."""
        return b'event: ping\ndata: {"type":"ping"}\n\n'

    def _step(self, block: Block, text: str) -> bytes:
        out = []
        for step in _STEPS[self._open, block]:
            if step == "stop":
                out.append(self._stop())
            elif step == "start":
                out.append(self._start(block))
            elif step == "delta":
                out.append(self._delta(block, text))
            elif step == "later":
                self._later.append(text)
        return b"".join(out)

    def _start(self, block: Block) -> bytes:
        self._open = block
        if block == "text":
            return self._block_start({"type": "text", "text": ""})
        self._thoughts.clear()
        return self._block_start({"type": "thinking", "thinking": "", "signature": ""})

    def _block_start(self, content: dict[str, Any]) -> bytes:
        self._index += 1
        return _event("content_block_start", {"index": self._index, "content_block": content})

    def _delta(self, block: Block, text: str) -> bytes:
        if block == "text":
            return self._block_delta({"type": "text_delta", "text": text})
        self._thoughts.append(text)
        if self._request.reasoning.omitted:
            return b""
        return self._block_delta({"type": "thinking_delta", "thinking": text})

    def _block_delta(self, delta: dict[str, Any]) -> bytes:
        return _event("content_block_delta", {"index": self._index, "delta": delta})

    def _stop(self) -> bytes:
        """Close the open block; a thinking block gets its signature last."""
        if self._open is None:
            return b""
        signature = b""
        if self._open == "thinking":
            signed = self._sign("".join(self._thoughts))
            signature = self._block_delta({"type": "signature_delta", "signature": signed})
        self._open = self._call = None
        return signature + _event("content_block_stop", {"index": self._index})

    def _tool(self, call: _Queued) -> bytes:
        if "queue" in _STEPS[self._open, "tool_use"]:
            self._queue.append(call)
            return b""
        return self._stop() + self._start_call(call)

    def _start_call(self, call: _Queued) -> bytes:
        self._open, self._call = "tool_use", call
        opened = call.opened
        name = self._request.names.get(opened.name, Origin(opened.name)).name
        start = self._block_start({"type": "tool_use", "id": opened.id, "name": name, "input": {}})
        return start + self._arguments("".join(call.pieces))

    def _arguments(self, text: str) -> bytes:
        return self._block_delta({"type": "input_json_delta", "partial_json": text}) if text else b""

    def _args(self, event: ToolArgs) -> bytes:
        call = self._call
        if call is not None and call.opened.index == event.index:
            call.pieces.append(event.fragment)
            return self._arguments(event.fragment)
        for waiting in self._queue:
            if waiting.opened.index == event.index:
                waiting.pieces.append(event.fragment)
        return self._advance()

    def _advance(self) -> bytes:
        """Let the next call through once the open one is a complete object and the next has begun."""
        out = []
        while self._queue and self._queue[0].pieces and self._call is not None and _complete(self._call.pieces):
            out += [self._stop(), self._start_call(self._queue.pop(0))]
        return b"".join(out)


def _complete(pieces: list[str]) -> bool:
    text = "".join(pieces).rstrip()
    return text.endswith("}") and is_object(text)


def _event(kind: str, fields: dict[str, Any]) -> bytes:
    return named(kind.encode(), _encode({"type": kind} | fields))


class MessagesBody:
    """Collects the events and writes one message."""

    def __init__(self, request: Request, ids: Ids, sign: Callable[[str], str]) -> None:
        self._request = request
        self._ids = ids
        self._sign = sign
        self._whole = Collected()

    def opening(self) -> bytes:
        """Nothing: the answer is written when it is whole."""
        return b""

    def event(self, event: Event) -> bytes:
        """Collect."""
        self._whole.take(event)
        return b""

    def closing(self, usage: Usage) -> bytes:
        """The whole message."""
        content = [self._block(item) for item in self._whole.items]
        message = {
            "id": self._ids.answer,
            "type": "message",
            "role": "assistant",
            "model": self._request.model,
            "content": content or [{"type": "text", "text": ""}],
            **stop_fields(self._whole.end, self._request),
            "usage": usage_record(usage),
        }
        return _encode(message)

    def failing(self, error: GatewayError) -> bytes:
        """Never reached: nothing was committed."""
        raise error

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""

    def _block(self, item: Item) -> dict[str, Any]:
        if item.call is not None:
            name = self._request.names.get(item.call.name, Origin(item.call.name)).name
            return {"type": "tool_use", "id": item.call.id, "name": name, "input": object_arguments(item.text)}
        if item.kind == "think":
            shown = "" if self._request.reasoning.omitted else item.text
            return {"type": "thinking", "thinking": shown, "signature": self._sign(item.text)}
        return {"type": "text", "text": item.text}
