"""Engine answers in Chat, streamed or whole, as canonical events."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec

from backends.contracts import EngineFailure
from gateway.dialects.chunk import canonical_usage
from gateway.dialects.engine_usage import EngineUsage
from gateway.dialects.events import Counted, End, Event, Refusal, Stop, Text, Think
from gateway.dialects.failures import aborted, foreign, malformed_call, truncated
from gateway.dialects.sse import Frames, payload
from gateway.dialects.surrogates import join
from gateway.dialects.toolcalls import Fragment, ToolCalls

_STOPS: dict[str, Stop] = {
    "stop": "end",
    "length": "length",
    "tool_calls": "tool",
    "function_call": "tool",
    "content_filter": "filter",
}


class _LogProbs(msgspec.Struct):
    content: list[Any] | None = None


class _Delta(msgspec.Struct):
    """A delta, or a whole message."""

    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    tool_calls: list[Fragment] | None = None


class _Choice(msgspec.Struct):
    index: int = 0
    delta: _Delta | None = None
    message: _Delta | None = None
    logprobs: _LogProbs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    matched_stop: int | str | list[int] | None = None


class _Chunk(msgspec.Struct):
    choices: list[_Choice] | None
    usage: EngineUsage | None = None


_chunks = msgspec.json.Decoder(_Chunk)


class _State:
    """What was seen of one choice."""

    __slots__ = ("calls", "high", "sequence", "stop", "thinking_high")

    def __init__(self, calls: ToolCalls) -> None:
        self.calls = calls
        self.stop: Stop | None = None
        self.sequence: str | None = None
        self.high = self.thinking_high = ""  # a high surrogate that waits for its other half


def _parse(data: bytes) -> _Chunk:
    """Raises msgspec.ValidationError or ValueError (msgspec.DecodeError included)."""
    try:
        return _chunks.decode(data)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return msgspec.convert(json.loads(data), _Chunk)  # json takes half a surrogate pair, msgspec does not


class EngineDecoder:
    """Reads one answer. `failure` is set when it is an error, aborted, or not of the dialect."""

    def __init__(
        self,
        frame_failure: Callable[[bytes], EngineFailure | None],
        new_id: Callable[[], str],
        strict: frozenset[str] = frozenset(),
    ) -> None:
        """`strict` names the tools whose arguments must be JSON objects."""
        self.failure: EngineFailure | None = None
        self.done = False
        self._frame_failure = frame_failure
        self._new_id = new_id
        self._strict = strict
        self._frames = Frames()
        self._states: dict[int, _State] = {}
        self._counted = False

    def feed(self, data: bytes) -> list[Event]:
        """Events of a stream's bytes, in any split."""
        events: list[Event] = []
        for block in self._frames.feed(data):
            if self.failure is not None or self.done:
                break
            text = payload(block)
            if text == b"[DONE]":
                self.done = True
            elif text:
                self._chunk(text, events)
        return events

    def whole(self, body: bytes) -> list[Event]:
        """Events of an answer that was not streamed."""
        events: list[Event] = []
        if not body:
            self.failure = truncated()
            return events
        self._chunk(body, events)
        return events

    def finish(self) -> list[End]:
        """The ends of all choices, once the body is complete. Sets `failure` when one has no finish reason."""
        if self.failure is not None:
            return []
        only_counts = self._counted and not self._states
        if not self.finished(1) and not only_counts:
            self.failure = truncated()
            return []
        return [End(state.stop or "error", state.sequence, index) for index, state in self._states.items()]

    def finished(self, choices: int) -> bool:
        """Whether so many choices were seen and every one has its finish reason."""
        return len(self._states) >= choices and all(state.stop is not None for state in self._states.values())

    def _chunk(self, data: bytes, events: list[Event]) -> None:
        try:
            chunk = _parse(data)
        except ValueError:  # ValidationError and DecodeError are ValueErrors
            self.failure = self._frame_failure(data) or foreign()
            return
        for choice in chunk.choices or ():
            self._choice(choice, events)
        if chunk.usage is not None:
            self._counted = True
            events.append(Counted(canonical_usage(chunk.usage)))

    def _choice(self, choice: _Choice, events: list[Event]) -> None:
        state = self._states.get(choice.index)
        if state is None:
            state = self._states[choice.index] = _State(ToolCalls(choice.index, self._new_id, self._strict))
        delta = choice.delta or choice.message
        if delta is not None and state.stop is None:
            self._delta(delta, choice, state, events)
        if choice.finish_reason:
            self._finish(choice, state, events)

    def _delta(self, delta: _Delta, choice: _Choice, state: _State, events: list[Event]) -> None:
        index = choice.index
        thought = delta.reasoning_content or delta.reasoning
        if thought:
            thought, state.thinking_high = join(state.thinking_high, thought)
            if thought:
                events.append(Think(thought, index))
        logprobs = choice.logprobs.content if choice.logprobs is not None else None
        if delta.content:
            text, state.high = join(state.high, delta.content)
            if text or logprobs:
                events.append(Text(text, index, _entries_of(delta.content, logprobs) if thought else logprobs))
        if delta.refusal:
            events.append(Refusal(delta.refusal, index))
        for fragment in delta.tool_calls or ():
            events += state.calls.feed(fragment)

    def _finish(self, choice: _Choice, state: _State, events: list[Event]) -> None:
        reason = choice.finish_reason or ""
        if reason == "abort":
            self.failure = aborted()
            return
        state.stop = _STOPS.get(reason, "end")
        whole = state.stop not in {"length", "filter"}
        events += state.calls.finish(whole=whole)
        if whole and state.calls.broken():
            self.failure = malformed_call()
            return
        matched = choice.stop_reason if choice.stop_reason is not None else choice.matched_stop
        if state.stop in {"end", "tool"}:
            state.stop = "tool" if state.calls.opened else "end"
        if state.stop == "end" and isinstance(matched, str):  # a number is the id of an end token
            state.stop, state.sequence = "stop_sequence", matched


def _entries_of(text: str, entries: list[Any] | None) -> list[Any] | None:
    """The log probabilities of the answer alone, out of those of reasoning and answer: the last that spell it."""
    if not entries:
        return None
    spelled = ""
    for start in range(len(entries) - 1, -1, -1):
        spelled = str(entries[start].get("token", "")) + spelled
        if spelled.startswith(text):
            return entries[start:]
    return None
