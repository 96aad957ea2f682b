"""Answers in Responses: items that open and close around deltas, every event numbered, one terminal event."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from gateway.dialects.base import Usage
from gateway.dialects.events import Counted, End, Event, Refusal, Text, Think, ToolArgs, ToolOpen
from gateway.dialects.freetext import FreeText
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.responses_resource import resource, usage_record
from gateway.dialects.sse import named
from gateway.dialects.tools import Origin
from gateway.errors import Cause, GatewayError

_encode = msgspec.json.encode
Kind = Literal["summary", "raw", "hidden", "text", "refusal"]
Status = Literal["completed", "incomplete", "failed"]

# How each kind of content opens, goes on and closes inside its item. Fields: `part` is the empty part of its event,
# `key` the part's text key, `index` the name of the part's index in events.
_PART: dict[Kind, dict[str, Any]] = {
    "summary": {
        "added": "response.reasoning_summary_part.added",
        "delta": "response.reasoning_summary_text.delta",
        "done": "response.reasoning_summary_text.done",
        "closed": "response.reasoning_summary_part.done",
        "part": {"type": "summary_text"},
        "key": "text",
        "index": "summary_index",
    },
    "raw": {
        "added": "response.content_part.added",
        "delta": "response.reasoning_text.delta",
        "done": "response.reasoning_text.done",
        "closed": "response.content_part.done",
        "part": {"type": "reasoning_text"},
        "key": "text",
        "index": "content_index",
    },
    "text": {
        "added": "response.content_part.added",
        "delta": "response.output_text.delta",
        "done": "response.output_text.done",
        "closed": "response.content_part.done",
        "part": {"type": "output_text", "annotations": [], "logprobs": []},
        "key": "text",
        "index": "content_index",
    },
    "refusal": {
        "added": "response.content_part.added",
        "delta": "response.refusal.delta",
        "done": "response.refusal.done",
        "closed": "response.content_part.done",
        "part": {"type": "refusal"},
        "key": "refusal",
        "index": "content_index",
    },
}
_REASONING: set[Kind] = {"summary", "raw", "hidden"}
_TERMINAL: dict[str, tuple[Status, str | None]] = {  # canonical stop -> status, reason when incomplete
    "end": ("completed", None),
    "tool": ("completed", None),
    "stop_sequence": ("completed", None),
    "length": ("incomplete", "max_output_tokens"),
    "context": ("incomplete", "max_output_tokens"),
    "filter": ("incomplete", "content_filter"),
    "cancelled": ("completed", None),
    "error": ("failed", None),
}
_ERROR_CODES = {Cause.RATE_LIMIT: "rate_limit_exceeded", Cause.BAD_REQUEST: "invalid_prompt"}


class _Content:
    """An open reasoning or message item with its one part."""

    __slots__ = ("id", "index", "kind", "logprobs", "pieces")

    def __init__(self, kind: Kind, item_id: str, index: int) -> None:
        self.kind = kind
        self.id = item_id
        self.index = index
        self.pieces: list[str] = []
        self.logprobs: list[Any] = []


class _Call:
    """An open tool call."""

    __slots__ = ("free", "index", "item", "origin", "pieces")

    def __init__(self, item: dict[str, Any], origin: Origin, index: int) -> None:
        self.item = item
        self.origin = origin
        self.index = index
        self.pieces: list[str] = []
        self.free = FreeText()  # of a custom tool


class ResponsesStream:
    """The output state machine: at most one reasoning or message item is open, and any number of calls."""

    def __init__(self, request: Request, ids: Ids, reasoning: Kind, seal: Callable[[str], str] | None) -> None:
        """`reasoning` is how reasoning is shown; `seal` makes `encrypted_content`, None leaves it out."""
        self.resource: dict[str, Any] | None = None  # the final resource, once the answer has ended
        self._request = request
        self._ids = ids
        self._reasoning = reasoning
        self._seal = seal
        self._open: _Content | None = None
        self._calls: dict[int, _Call] = {}
        self._done: dict[int, dict[str, Any]] = {}  # finished items by output_index
        self._next = 0
        self._end = End("end")

    def opening(self) -> bytes:
        """`response.created` and `response.in_progress`."""
        started = {"response": resource(self._request, self._ids, "in_progress", [])}
        return self._emit("response.created", started) + self._emit("response.in_progress", started)

    def event(self, event: Event) -> bytes:
        """One canonical event."""
        if isinstance(event, Text):
            return self._content("text", event.text, event.logprobs)
        if isinstance(event, Think):
            return self._content(self._reasoning, event.text, None)
        if isinstance(event, ToolArgs):
            return self._args(event)
        if isinstance(event, ToolOpen):
            return self._tool(event)
        if isinstance(event, Refusal):
            return self._content("refusal", event.text, None)
        if isinstance(event, End):
            self._end = event
        return b""

    def closing(self, usage: Usage) -> bytes:
        """Close all items, then the terminal event with the whole resource."""
        status, reason = _TERMINAL[self._end.stop]
        out = b""
        if not self._next and status == "completed":
            out = self._content("text", "", None)
        out += self._close_all("completed" if status == "completed" else "incomplete")
        details = {"reason": reason} if reason else None
        return out + self._terminal(status, usage=usage_record(usage), incomplete_details=details)

    def failing(self, error: GatewayError) -> bytes:
        """Close all items as incomplete, then `response.failed`."""
        out = self._close_all("incomplete")
        code = _ERROR_CODES.get(error.cause, "server_error")
        return out + self._terminal("failed", error={"code": code, "message": error.message})

    def keepalive(self) -> bytes:
        """`response.in_progress` again: Codex' idle timer does not see comments."""
        started = resource(self._request, self._ids, "in_progress", [])
        return self._emit("response.in_progress", {"response": started})

    def _emit(self, kind: str, fields: dict[str, Any]) -> bytes:
        number = self._ids.sequence
        self._ids.sequence = number + 1
        return named(kind.encode(), _encode({"type": kind, "sequence_number": number} | fields))

    def _terminal(self, status: Status, **fields: Any) -> bytes:
        output = [self._done[index] for index in sorted(self._done)]
        completed_at = self._ids.created if status == "completed" else None
        self.resource = resource(self._request, self._ids, status, output, completed_at=completed_at, **fields)
        return self._emit(f"response.{status}", {"response": self.resource})

    def _content(self, kind: Kind, text: str, logprobs: list[Any] | None) -> bytes:
        opened = self._open
        head = b""
        if opened is None or opened.kind != kind:
            head = self._close("completed")
            opened = self._open = _Content(kind, self._ids.new("rs_" if kind in _REASONING else "msg_", 48), self._next)
            self._next += 1
            head += self._open_item(opened)
        if not text:
            return head
        opened.pieces.append(text)
        if kind == "hidden":
            return head
        form = _PART[kind]
        fields: dict[str, Any] = {
            "item_id": opened.id,
            "output_index": opened.index,
            form["index"]: 0,
            "delta": text,
        }
        if kind == "text":
            fields["logprobs"] = logprobs or []
            opened.logprobs += logprobs or ()
        return head + self._emit(form["delta"], fields)

    def _open_item(self, content: _Content) -> bytes:
        item: dict[str, Any] = {"id": content.id, "type": "reasoning", "summary": []}
        if content.kind not in _REASONING:
            item = {"id": content.id, "type": "message", "status": "in_progress", "role": "assistant", "content": []}
        out = self._emit("response.output_item.added", {"output_index": content.index, "item": item})
        if content.kind == "hidden":
            return out
        form = _PART[content.kind]
        part = form["part"] | {form["key"]: ""}
        place = {"item_id": content.id, "output_index": content.index, form["index"]: 0}
        return out + self._emit(form["added"], place | {"part": part})

    def _close(self, status: str) -> bytes:
        """Close the open content item, if there is one."""
        content, self._open = self._open, None
        if content is None:
            return b""
        text = "".join(content.pieces)
        out, part = b"", {}
        if content.kind != "hidden":
            form = _PART[content.kind]
            part = form["part"] | {form["key"]: text}
            place = {"item_id": content.id, "output_index": content.index, form["index"]: 0}
            done = place | {form["key"]: text}
            if content.kind == "text":
                part["logprobs"] = done["logprobs"] = content.logprobs
            out = self._emit(form["done"], done) + self._emit(form["closed"], place | {"part": part})
        return out + self._item_done(content.index, self._finished(content, part, text, status))

    def _finished(self, content: _Content, part: dict[str, Any], text: str, status: str) -> dict[str, Any]:
        if content.kind not in _REASONING:
            return {
                "id": content.id,
                "type": "message",
                "status": status,
                "role": "assistant",
                "content": [part],
            }
        item: dict[str, Any] = {"id": content.id, "type": "reasoning", "summary": []}
        if content.kind == "summary":
            item["summary"] = [part]
        elif content.kind == "raw":
            item["content"] = [part]
        if self._seal is not None:
            item["encrypted_content"] = self._seal(text)
        return item

    def _item_done(self, index: int, item: dict[str, Any]) -> bytes:
        self._done[index] = item
        return self._emit("response.output_item.done", {"output_index": index, "item": item})

    def _tool(self, event: ToolOpen) -> bytes:
        closed = self._close("completed")
        origin = self._request.names.get(event.name, Origin(event.name))
        custom = origin.kind == "custom"
        item: dict[str, Any] = {
            "id": self._ids.new("ctc_" if custom else "fc_", 48),
            "type": "custom_tool_call" if custom else "function_call",
            "status": "in_progress",
            "call_id": event.id,
            "name": origin.name,
            "input" if custom else "arguments": "",
        }
        if origin.namespace is not None:
            item["namespace"] = origin.namespace
        call = self._calls[event.index] = _Call(item, origin, self._next)
        self._next += 1
        return closed + self._emit("response.output_item.added", {"output_index": call.index, "item": item})

    def _args(self, event: ToolArgs) -> bytes:
        call = self._calls[event.index]
        if call.origin.kind == "custom":
            return self._free_text(call, call.free.feed(event.fragment))
        call.pieces.append(event.fragment)
        return self._emit(
            "response.function_call_arguments.delta",
            {"item_id": call.item["id"], "output_index": call.index, "delta": event.fragment},
        )

    def _free_text(self, call: _Call, text: str) -> bytes:
        place = {"item_id": call.item["id"], "output_index": call.index}
        return self._emit("response.custom_tool_call_input.delta", place | {"delta": text}) if text else b""

    def _close_all(self, status: str) -> bytes:
        out = [self._close(status)]
        out += [self._close_call(call, status) for call in self._calls.values()]
        self._calls.clear()
        return b"".join(out)

    def _close_call(self, call: _Call, status: str) -> bytes:
        arguments = "".join(call.pieces)
        place = {"item_id": call.item["id"], "output_index": call.index}
        if call.origin.kind == "custom":
            delta = self._free_text(call, call.free.finish())
            text = call.free.text
            done = self._emit("response.custom_tool_call_input.done", place | {"input": text})
            finished = call.item | {"input": text, "status": status}
            return delta + done + self._item_done(call.index, finished)
        named_call = place | {"name": call.origin.name, "arguments": arguments}
        done = self._emit("response.function_call_arguments.done", named_call)
        return done + self._item_done(call.index, call.item | {"arguments": arguments, "status": status})


class ResponsesBody:
    """The whole resource for a client that does not stream; the same machine, its events unsent."""

    def __init__(self, stream: ResponsesStream) -> None:
        self._stream = stream

    @property
    def resource(self) -> dict[str, Any] | None:
        """The final resource."""
        return self._stream.resource

    def opening(self) -> bytes:
        """Nothing."""
        return b""

    def event(self, event: Event) -> bytes:
        """Take one event."""
        if not isinstance(event, Counted):
            self._stream.event(event)
        return b""

    def closing(self, usage: Usage) -> bytes:
        """The resource."""
        self._stream.closing(usage)
        return _encode(self._stream.resource)

    def failing(self, error: GatewayError) -> bytes:
        """Nothing was committed, but a stored response is failed."""
        self._stream.failing(error)
        return b""

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""
