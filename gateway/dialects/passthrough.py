"""Chat to Chat and Completions to Completions without translation: the engine's bytes go on as they are.

A chunk is looked at with a few byte comparisons. Engines write the same head (`data: {"id":…,"choices":[{`) and the
same tail (`"finish_reason":null…`) around every delta of a stream; both are learned from the first delta, and an event
between them is plain: nothing in it concerns the gateway. Keys of JSON cannot hide inside its strings, because quotes
are escaped there. Every other event is decoded one level at a time and put back together from the engine's own bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from msgspec import Raw

from backends.contracts import EngineFailure
from gateway.dialects import openai_errors
from gateway.dialects.base import Usage
from gateway.dialects.chunk import Fields, decode_fields, fields_of, is_utf8, list_of_fields, merged_usage, read_usage
from gateway.dialects.direct import DirectStream
from gateway.dialects.events import ToolArgs, ToolOpen
from gateway.dialects.failures import aborted, foreign, malformed_call, truncated
from gateway.dialects.ids import Ids
from gateway.dialects.sse import DONE, Frames, frame, payload
from gateway.dialects.surrogates import Mender
from gateway.dialects.toolcalls import Fragment, ToolCalls
from gateway.errors import GatewayError

_CHOICES = b'"choices":[{'
_UNFINISHED = b'"finish_reason":null'
_NULL = Raw(b"null")
EMPTY = (b"", b"null", b'""', b"[]")
_ASSISTANT = {"role": "assistant"}
_SAYING = ("content", "reasoning_content", "refusal", "audio")
_SILENT = {"role", "content", "tool_calls", "reasoning_content"}
_fragments = msgspec.json.Decoder(list[Fragment])
_text = msgspec.json.Decoder(str)
_encode = msgspec.json.encode
STOPS = {"stop": "end", "length": "length", "tool_calls": "tool", "function_call": "tool", "content_filter": "filter"}


def raw(value: object) -> Raw:
    """`value` as the bytes of its JSON."""
    return Raw(_encode(value))


class _Choice:
    """What was seen of one choice of the stream."""

    __slots__ = ("calls", "finished", "role_sent")

    def __init__(self, calls: ToolCalls) -> None:
        self.calls = calls
        self.finished = False
        self.role_sent = False


class PassThrough:
    """The transcoder of a stream that needs no translation.

    `ids.answer` replaces an engine id that lacks `prefix`; `model` is what the client sent and sees echoed. The
    first events are held until something semantic comes, so that another attempt can still take over unseen.
    """

    def __init__(
        self,
        ids: Ids,
        *,
        model: str,
        chat: bool,
        choices: int | None,
        include_usage: bool,
        tools: bool,
        strict: frozenset[str] = frozenset(),
        rename_reasoning: bool,
        frame_failure: Callable[[bytes], EngineFailure | None],
    ) -> None:
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self._ids = ids
        self._model = raw(model)
        self._chat = chat
        self._expected = choices  # None: as many as the engine names (Completions with several prompts)
        self._include_usage = include_usage
        self._tools = tools
        self._strict = strict  # names of the tools whose arguments must be JSON objects
        self._rename = rename_reasoning and chat
        self._frame_failure = frame_failure
        self._frames = Frames()
        self._mender = Mender()
        self._choices: dict[int, _Choice] = {}
        self._identity: dict[str, Raw] = {}  # id, created and model of every chunk of this stream
        self._head = self._new_head = self._tail = self._chunk_tail = b""
        self._held: list[bytes] = []  # events before the first semantic one
        self._closing: Fields | None = None  # the usage chunk, which goes last
        self._direct = DirectStream(model) if chat and choices == 1 and not tools else None  # until it cannot
        self._done = False

    def feed(self, data: bytes) -> bytes:
        """See `Transcoder.feed`. A chunk that is one plain event costs a few comparisons."""
        head = self._head
        if (
            head
            and data.startswith(head)
            and data.endswith(self._tail)
            and not self._frames.pending
            and data.find(b"\n", len(head)) == len(data) - 2
            and self._plain(data)
        ):
            return self._renamed(data)
        return self._slowly(data)

    def relay(self, chunk: bytes, start: int) -> bytes:
        """The chunk for the client when the engine's chunk is one plain event, b"" when it has to be fed.

        A chunk is payload in the framing of HTTP's chunked coding: here `chunk[start:-2]`.
        """
        head, tail = self._head, self._chunk_tail
        inside = start + len(head)
        # Slices are compared instead of asking by `startswith` and `endswith`: compiled, that is twice as fast.
        if (
            not head
            or chunk[start:inside] != head
            or chunk[-len(tail) :] != tail
            or self._frames.pending
            or chunk.find(b"\n", inside) != len(chunk) - 4
            or not self._plain(chunk)
        ):
            return b""
        if head is self._new_head and not (self._rename and chunk.find(b'"reasoning":', inside) >= 0):
            return chunk
        passed = self._renamed(chunk[start:-2])
        return b"%x\r\n%b\r\n" % (len(passed), passed)

    def eof(self) -> bytes:
        """See `Transcoder.eof`."""
        if self.failure is not None or self._done:
            return b""
        if self._frames.pending.startswith(b"{"):  # a JSON body instead of a stream
            self.failure = self._frame_failure(self._frames.pending) or truncated()
            return b""
        only_counts = not self._choices and self.usage is not None  # an answer without choices, e.g. max_tokens 0
        if not self.finished and not only_counts:
            self.failure = truncated()
            return b""
        return self._close()

    def fail(self, error: GatewayError) -> bytes:
        """See `Transcoder.fail`: an error frame, then the end."""
        return frame(openai_errors.body(error)) + DONE

    def keepalive(self) -> bytes:
        """A comment; every client skips it."""
        return b": ping\n\n"

    def _plain(self, data: bytes) -> bool:
        """Whether an event between the known head and tail needs no look inside."""
        looked_at = data.find(b"\\u", len(self._head)) >= 0 or (self._tools and b'"tool_calls":[' in data)
        return not looked_at and is_utf8(data)

    def _renamed(self, data: bytes) -> bytes:
        if self._head is not self._new_head:
            data = self._new_head + data[len(self._head) :]
        if self._rename:
            data = data.replace(b'"reasoning":', b'"reasoning_content":', 1)
        return data

    def _slowly(self, data: bytes) -> bytes:
        out: list[bytes] = []
        for block in self._frames.feed(data):
            if self.failure is not None or self._done:
                break
            out.append(self._block(block))
        joined = b"".join(out)
        if self.started:
            if self._held:
                joined = b"".join(self._held) + joined
                self._held.clear()
            return joined
        if joined:
            self._held.append(joined)
        return b""

    def _block(self, block: bytes) -> bytes:
        head = self._head
        if head and block.startswith(head) and b"\n" not in block:
            event = block + b"\n\n"
            if event.endswith(self._tail) and self._plain(event):
                return self._renamed(event)
        data = payload(block)
        if not data:
            return b""
        if data == b"[DONE]":
            return self._close() if self.finished else b""
        if not is_utf8(data):
            self.failure = foreign()
            return b""
        if self._direct is not None and self._direct.take(data):
            return self._as_it_is(self._direct, data, block)
        self._leave_direct()
        try:
            return self._event(self._mender.mend(data), block)
        except (msgspec.MsgspecError, ValueError):  # a level of the chunk that is not of the dialect
            self.failure = self._frame_failure(data) or foreign()
            return b""

    def _as_it_is(self, direct: DirectStream, data: bytes, block: bytes) -> bytes:
        self.usage = direct.usage
        if direct.closing:
            return b""
        self.started, self.finish, self.finished = direct.started, direct.finish, direct.finish is not None
        if self.started and not (self._head or self.finished):
            self._learn(block)
        return frame(data)

    def _leave_direct(self) -> None:
        """Some event has to be looked into: from here on all are."""
        direct, self._direct = self._direct, None
        if direct is None or not direct.role_sent:
            return
        self._identity = {"id": raw(direct.id), "created": raw(direct.created), "model": self._model}
        state = self._choices[0] = _Choice(ToolCalls(0, self._ids.call, self._strict))
        state.role_sent, state.finished = direct.role_sent, direct.finish is not None
        if direct.closing:
            self._closing = decode_fields(direct.closing)

    def _event(self, data: bytes, block: bytes) -> bytes:
        chunk = decode_fields(data)
        if chunk is None or "choices" not in chunk:
            self.failure = self._frame_failure(data) or foreign()
            return b""
        chunk.pop("metadata", None)  # SGLang's own, of types that clients' models refuse
        self._identify(chunk)
        self._take_usage(chunk)
        choices = list_of_fields(chunk["choices"])
        if not choices:
            if "usage" in chunk and self.usage is not None:
                self._closing = chunk
                return b""
            return frame(_encode(chunk))
        before: list[bytes] = []
        kept = [written for choice in choices if (written := self._choice(choice, chunk, before))]
        if self.failure is not None:
            return b"".join(before)
        if kept:
            before.append(frame(_encode({**chunk, "choices": kept})))
            self._learn(block)
        return b"".join(before)

    def _identify(self, chunk: Fields) -> None:
        """One id, one `created`, one model in all chunks; the model is the one the client named."""
        if not self._identity:
            prefix = b'"chatcmpl-' if self._chat else b'"cmpl-'
            given = bytes(chunk.get("id", _NULL))
            self._identity = {
                "id": chunk["id"] if given.startswith(prefix) else raw(self._ids.answer),
                "created": chunk["created"] if bytes(chunk.get("created", b"")).isdigit() else raw(self._ids.created),
                "model": self._model,
            }
        chunk.update(self._identity)

    def _take_usage(self, chunk: Fields) -> None:
        """Counts are cumulative and belong on the last chunk only."""
        given = chunk.get("usage")
        if given is None or bytes(given) == b"null":
            return
        self.usage = read_usage(given)
        chunk["usage"] = merged_usage(self.usage, given)
        if bytes(chunk["choices"]) == b"[]":
            return
        self._closing = {**chunk, "choices": Raw(b"[]")}
        if self._include_usage:
            chunk["usage"] = _NULL
        else:
            del chunk["usage"]

    def _choice(self, choice: Fields, chunk: Fields, before: list[bytes]) -> dict[str, Any] | None:
        """Look into one choice of a chunk; what to write of it, None to leave it out."""
        index = int(bytes(choice.get("index", b"0")))
        state = self._choices.get(index)
        if state is None:
            state = self._choices[index] = _Choice(ToolCalls(index, self._ids.call, self._strict))
        delta: dict[str, Any] = fields_of(choice.get("delta")) if self._chat else {}
        semantic = self._delta(delta, state) if self._chat else bytes(choice.get("text", b"")) not in EMPTY
        reason = choice.get("finish_reason")
        if reason is not None and bytes(reason) != b"null":
            before += self._finish(choice, state, chunk, _text.decode(reason))
            semantic = True
        self.started = self.started or semantic
        if not self._chat:
            return choice
        if not state.role_sent:
            delta = _ASSISTANT | delta
            state.role_sent = True
        elif not semantic and not delta.keys() - _SILENT:
            return None
        return {**choice, "delta": delta}

    def _delta(self, delta: dict[str, Any], state: _Choice) -> bool:
        """Normalise a Chat delta; whether it says anything."""
        if "reasoning" in delta:
            spelled = delta.pop("reasoning")
            if bytes(delta.get("reasoning_content", b"")) in EMPTY:
                delta["reasoning_content"] = spelled
            self._rename = True
        if "role" in delta and bytes(delta["role"]) in EMPTY:
            del delta["role"]
        elif state.role_sent:
            delta.pop("role", None)
        calls = delta.pop("tool_calls", _NULL)
        if bytes(calls) not in EMPTY:
            events = [event for fragment in _fragments.decode(calls) for event in state.calls.feed(fragment)]
            if events:
                delta["tool_calls"] = tool_deltas(events)
                return True
        return any(key in delta and bytes(delta[key]) not in EMPTY for key in _SAYING)

    def _finish(self, choice: Fields, state: _Choice, chunk: Fields, reason: str) -> list[bytes]:
        """Close a choice: late tool calls first, and a reason that agrees with them."""
        if reason == "abort":
            self.failure = aborted()
            return []
        late: list[bytes] = []
        events = state.calls.finish(whole=reason != "length")
        if reason != "length" and state.calls.broken():
            self.failure = malformed_call()
            return []
        if events:
            extra = {**choice, "finish_reason": None, "delta": {"tool_calls": tool_deltas(events)}}
            late.append(frame(_encode({**chunk, "choices": [extra]})))
        if self._chat and reason in {"stop", "tool_calls"}:
            reason = "tool_calls" if state.calls.opened else "stop"
            choice["finish_reason"] = raw(reason)
        state.finished = True
        if self.finish is None or bytes(choice.get("index", b"0")) == b"0":
            self.finish = STOPS.get(reason, "end")
        seen = len(self._choices) >= (self._expected or 1)
        self.finished = seen and all(other.finished for other in self._choices.values())
        return late

    def _learn(self, block: bytes) -> None:
        """Remember head and tail of a compact event, once every choice was seen and has its role."""
        if self._head or not self.started or self._expected is None:
            return
        if self._direct is None and len(self._choices) < self._expected:
            return
        start, end = block.find(_CHOICES), block.rfind(_UNFINISHED)
        if start < 0 or end < 0 or b"\n" in block or not block.startswith(b'data: {"id":"'):
            return
        head = block[: start + len(_CHOICES)]
        fields = decode_fields(head[6:] + b"}]}")
        if fields is None or fields.keys() - {"id", "object", "created", "model", "choices"}:
            return
        self._tail = block[end:] + b"\n\n"
        self._chunk_tail = self._tail + b"\r\n"
        self._head = self._new_head = head
        if self._direct is None:
            ours = {**fields, **self._identity}
            ours.pop("choices")
            new_head = b"data: " + _encode(ours)[:-1] + b"," + _CHOICES
            self._new_head = head if head == new_head else new_head

    def _close(self) -> bytes:
        self._done = True
        if self._include_usage and self._direct is not None and self._direct.closing:
            return frame(self._direct.closing) + DONE
        if self._include_usage and self._closing is not None:
            return frame(_encode(self._closing)) + DONE
        return DONE


def tool_deltas(events: list[ToolOpen | ToolArgs]) -> list[dict[str, object]]:
    """Chat's `delta.tool_calls` for these events: id, type and name once, then only arguments."""
    deltas: list[dict[str, object]] = []
    for event in events:
        if isinstance(event, ToolOpen):
            function = {"name": event.name, "arguments": ""}
            deltas.append({"index": event.index, "id": event.id, "type": "function", "function": function})
        else:
            deltas.append({"index": event.index, "function": {"arguments": event.fragment}})
    return deltas
