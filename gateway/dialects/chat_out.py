"""Answers in Chat, written anew: for stops on the answer, hidden reasoning, custom tools, deprecated functions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from gateway.dialects import openai_errors
from gateway.dialects.base import Usage
from gateway.dialects.chunk import openai_usage
from gateway.dialects.collect import Collected
from gateway.dialects.events import Counted, End, Event, Refusal, Text, Think, ToolArgs, ToolOpen
from gateway.dialects.freetext import FreeText
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.sse import DONE, frame
from gateway.dialects.tools import Origin, unwrap
from gateway.errors import GatewayError

_FINISH = {"end": "stop", "stop_sequence": "stop", "length": "length", "context": "length", "tool": "tool_calls",
           "filter": "content_filter", "cancelled": "stop", "error": "stop"}  # fmt: skip
_encode = msgspec.json.encode


def finish_reason(end: End, request: Request) -> str:
    """Chat's finish reason; requests with the deprecated `functions` get theirs."""
    reason = _FINISH[end.stop]
    return "function_call" if reason == "tool_calls" and request.legacy_functions else reason


class ChatStream:
    """Writes chunks: role, deltas, one finish chunk per choice, counts when asked, `[DONE]`."""

    def __init__(self, request: Request, ids: Ids) -> None:
        self._request = request
        self._names: Mapping[str, Origin] = request.names
        self._top = {
            "id": ids.answer,
            "object": "chat.completion.chunk",
            "created": ids.created,
            "model": request.model,
        }
        self._roles: set[int] = set()
        self._custom: dict[tuple[int, int], FreeText] = {}  # open custom calls, by choice and index
        self._write: dict[type, Callable[[Any], bytes]] = {
            Think: self._think,
            Text: self._text,
            Refusal: self._refusal,
            ToolOpen: self._open,
            ToolArgs: self._args,
            End: self._end,
        }

    def opening(self) -> bytes:
        """The first role chunk."""
        return self._role(0)

    def event(self, event: Event) -> bytes:
        """One event as a chunk."""
        if isinstance(event, Counted):
            return b""
        return self._role(event.choice) + self._write[type(event)](event)

    def closing(self, usage: Usage) -> bytes:
        """The counts, when asked for, and `[DONE]`."""
        if not self._request.include_usage:
            return DONE
        return frame(_encode(self._top | {"choices": [], "usage": openai_usage(usage)})) + DONE

    def failing(self, error: GatewayError) -> bytes:
        """An error frame, which SDKs raise, then the end."""
        return frame(openai_errors.body(error)) + DONE

    def keepalive(self) -> bytes:
        """A comment."""
        return b": ping\n\n"

    def _role(self, choice: int) -> bytes:
        if choice in self._roles:
            return b""
        self._roles.add(choice)
        return self._chunk(choice, {"role": "assistant", "content": ""})

    def _chunk(self, choice: int, delta: dict[str, Any], finish: str | None = None, logprobs: Any = None) -> bytes:
        entry = {"index": choice, "delta": delta, "logprobs": logprobs, "finish_reason": finish}
        chunk: dict[str, Any] = self._top | {"choices": [entry]}
        if self._request.include_usage:
            chunk["usage"] = None
        return frame(_encode(chunk))

    def _think(self, event: Think) -> bytes:
        return self._chunk(event.choice, {"reasoning_content": event.text})

    def _text(self, event: Text) -> bytes:
        logprobs = {"content": event.logprobs, "refusal": None} if event.logprobs else None
        return self._chunk(event.choice, {"content": event.text}, logprobs=logprobs)

    def _refusal(self, event: Refusal) -> bytes:
        return self._chunk(event.choice, {"refusal": event.text})

    def _open(self, event: ToolOpen) -> bytes:
        origin = self._names.get(event.name, Origin(event.name))
        if self._request.legacy_functions:
            return self._chunk(event.choice, {"function_call": {"name": origin.name, "arguments": ""}})
        call: dict[str, Any] = {"index": event.index, "id": event.id, "type": origin.kind}
        if origin.kind == "custom":
            self._custom[event.choice, event.index] = FreeText()
            call["custom"] = {"name": origin.name, "input": ""}
        else:
            call["function"] = {"name": origin.name, "arguments": ""}
        return self._chunk(event.choice, {"tool_calls": [call]})

    def _args(self, event: ToolArgs) -> bytes:
        free = self._custom.get((event.choice, event.index))
        if free is not None:
            return self._free_text(event.choice, event.index, free.feed(event.fragment))
        if self._request.legacy_functions:
            return self._chunk(event.choice, {"function_call": {"arguments": event.fragment}})
        call = {"index": event.index, "function": {"arguments": event.fragment}}
        return self._chunk(event.choice, {"tool_calls": [call]})

    def _free_text(self, choice: int, index: int, text: str) -> bytes:
        return self._chunk(choice, {"tool_calls": [{"index": index, "custom": {"input": text}}]}) if text else b""

    def _end(self, event: End) -> bytes:
        out = [
            self._free_text(choice, index, free.finish())
            for (choice, index), free in self._custom.items()
            if choice == event.choice
        ]
        out.append(self._chunk(event.choice, {}, finish_reason(event, self._request)))
        return b"".join(out)


class ChatBody:
    """Collects the events and writes one `chat.completion`."""

    def __init__(self, request: Request, ids: Ids) -> None:
        self._request = request
        self._ids = ids
        self._choices: dict[int, Collected] = {}

    def opening(self) -> bytes:
        """Nothing: the answer is written when it is whole."""
        return b""

    def event(self, event: Event) -> bytes:
        """Collect."""
        if not isinstance(event, Counted):
            self._choices.setdefault(event.choice, Collected()).take(event)
        return b""

    def closing(self, usage: Usage) -> bytes:
        """The whole answer."""
        choices = [self._choice(index, whole) for index, whole in sorted(self._choices.items())]
        return _encode({
            "id": self._ids.answer,
            "object": "chat.completion",
            "created": self._ids.created,
            "model": self._request.model,
            "choices": choices,
            "usage": openai_usage(usage),
        })  # fmt: skip

    def failing(self, error: GatewayError) -> bytes:
        """Never reached: nothing was committed."""
        raise error

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""

    def _choice(self, index: int, whole: Collected) -> dict[str, Any]:
        calls = [self._call(opened, arguments) for opened, arguments in whole.calls()]
        text = whole.joined("text")
        message: dict[str, Any] = {
            "role": "assistant",
            "content": text if text or not calls else None,
            "refusal": whole.joined("refusal") or None,
        }
        if thoughts := whole.joined("think"):
            message["reasoning_content"] = thoughts
        if calls and self._request.legacy_functions:
            message["function_call"] = calls[0]["function"]
        elif calls:
            message["tool_calls"] = calls
        entries = whole.logprobs()
        logprobs = {"content": entries, "refusal": None} if entries else None
        reason = finish_reason(whole.end, self._request)
        return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}

    def _call(self, opened: ToolOpen, arguments: str) -> dict[str, Any]:
        origin = self._request.names.get(opened.name, Origin(opened.name))
        if origin.kind == "custom":
            custom = {"name": origin.name, "input": unwrap(arguments)}
            return {"id": opened.id, "type": "custom", "custom": custom}
        return {"id": opened.id, "type": "function", "function": {"name": origin.name, "arguments": arguments}}
