"""Answers that are not streamed, from Chat to Chat and Completions to Completions: changed only where they must be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from backends.contracts import EngineFailure
from gateway.dialects.base import Usage
from gateway.dialects.chunk import Fields, decode_fields, fields_of, is_utf8, list_of_fields, merged_usage, read_usage
from gateway.dialects.direct import direct_answer
from gateway.dialects.events import ToolArgs, ToolOpen
from gateway.dialects.failures import aborted, foreign, malformed_call, truncated
from gateway.dialects.ids import Ids
from gateway.dialects.passthrough import EMPTY, STOPS, raw
from gateway.dialects.toolcalls import Fragment, ToolCalls
from gateway.errors import GatewayError

_fragments = msgspec.json.Decoder(list[Fragment])
_text = msgspec.json.Decoder(str)


class PassBody:
    """The transcoder of one JSON answer: nothing goes out before `eof`.

    The engine's bytes are returned as they are unless id, model, reasoning key, tool calls, finish reason or counts
    are not what a Chat client may be told.
    """

    def __init__(
        self,
        ids: Ids,
        *,
        model: str,
        chat: bool,
        strict: frozenset[str] = frozenset(),
        frame_failure: Callable[[bytes], EngineFailure | None],
    ) -> None:
        """`strict` names the tools whose arguments must be JSON objects."""
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self._ids = ids
        self._name = model
        self._chat = chat
        self._strict = strict
        self._frame_failure = frame_failure
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """Collect; an answer that is not streamed is written by `eof`."""
        self._parts.append(data)
        return b""

    def eof(self) -> bytes:
        """The whole answer, or b"" with `failure` set."""
        body = b"".join(self._parts)
        if not is_utf8(body):
            self.failure = foreign()
            return b""
        direct = direct_answer(body, self._name) if self._chat else None
        if direct is not None:
            self.usage, self.finish = direct
            self.started = self.finished = True
            return body
        answer = decode_fields(body)
        if answer is None or "choices" not in answer:
            self.failure = truncated() if answer is None else self._frame_failure(body) or foreign()
            return b""
        dropped = answer.pop("metadata", None)  # SGLang's own, of types that clients' models refuse
        try:
            changes = self._top(answer) | self._altered(answer["choices"])
        except msgspec.MsgspecError:
            self.failure = foreign()
        if self.failure is not None:
            return b""
        self.started = self.finished = True
        return msgspec.json.encode(answer | changes) if changes or dropped is not None else body

    def fail(self, error: GatewayError) -> bytes:
        """Never reached: an answer that is not streamed is not committed before it is whole."""
        raise error

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""

    def _top(self, answer: Fields) -> Fields:
        changes: Fields = {}
        prefix = b'"chatcmpl-' if self._chat else b'"cmpl-'
        if not bytes(answer.get("id", b"")).startswith(prefix):
            changes["id"] = raw(self._ids.answer)
        model = raw(self._name)
        if bytes(answer.get("model", b"")) != bytes(model):
            changes["model"] = model
        given = answer.get("usage")
        if given is not None and bytes(given) != b"null":
            self.usage = read_usage(given)
            merged = merged_usage(self.usage, given)
            if msgspec.json.decode(merged) != msgspec.json.decode(given):
                changes["usage"] = merged
        return changes

    def _altered(self, given: Raw) -> Fields:
        """The choices, when one of them had to be changed."""
        choices = list_of_fields(given)
        look = self._choice if self._chat else self._seen
        altered = [look(choice) for choice in choices]
        return {"choices": raw(choices)} if any(altered) else {}

    def _seen(self, choice: Fields) -> bool:
        """Note a choice's finish reason; Completions choices are never altered."""
        reason = bytes(choice.get("finish_reason", b"null"))
        if reason == b"null":
            self.failure = truncated()
        elif reason == b'"abort"':
            self.failure = aborted()
        elif self.finish is None:
            self.finish = STOPS.get(_text.decode(reason), "end")
        return False

    def _choice(self, choice: Fields) -> bool:
        """Set a Chat choice right in place; whether that changed anything."""
        message = fields_of(choice.get("message"))
        changed = self._reasoning(message)
        calls = self._calls(message, cut=bytes(choice.get("finish_reason", b"")) == b'"length"')
        changed = changed or calls is not None
        if "content" not in message:
            message["content"] = Raw(b"null")
            changed = True
        if changed:
            choice["message"] = raw(message)
        reason = bytes(choice.get("finish_reason", b"null"))
        agreed = b'"tool_calls"' if "tool_calls" in message and bytes(message["tool_calls"]) != b"null" else b'"stop"'
        if reason in {b'"stop"', b'"tool_calls"'} and reason != agreed:
            choice["finish_reason"] = Raw(agreed)
            changed = True
        self._seen(choice)
        return changed

    def _reasoning(self, message: Fields) -> bool:
        if "reasoning" not in message:
            return False
        spelled = message.pop("reasoning")
        if bytes(message.get("reasoning_content", b"")) in EMPTY and bytes(spelled) != b"null":
            message["reasoning_content"] = spelled
        return True

    def _calls(self, message: Fields, *, cut: bool) -> Raw | None:
        """Write the tool calls anew when an id is missing or repeated or arguments are no string; None: left alone."""
        given = message.get("tool_calls")
        if given is None or bytes(given) == b"null":
            return None
        fragments = _fragments.decode(given)
        calls = ToolCalls(0, self._ids.call, self._strict)
        events: list[ToolOpen | ToolArgs] = []
        for position, fragment in enumerate(fragments):
            fragment.index = position
            events += calls.feed(fragment)
        events += calls.finish(whole=not cut)
        if not cut and calls.broken():
            self.failure = malformed_call()
        written = whole_calls(events)
        if not written:
            del message["tool_calls"]
            return given
        as_given = [(f.id, f.function and f.function.name, f.function and f.function.arguments) for f in fragments]
        if as_given == [(c["id"], c["function"]["name"], c["function"]["arguments"]) for c in written]:
            return None
        message["tool_calls"] = raw(written)
        return given


def whole_calls(events: list[ToolOpen | ToolArgs]) -> list[dict[str, Any]]:
    """Chat's `message.tool_calls` for these events."""
    calls: list[dict[str, Any]] = []
    for event in events:
        if isinstance(event, ToolOpen):
            function = {"name": event.name, "arguments": ""}
            calls.append({"id": event.id, "type": "function", "function": function})
        else:
            calls[event.index]["function"]["arguments"] += event.fragment
    return calls
