"""The transcoder for answers that are translated: decoder, stop matchers, and the dialect's encoder."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from backends.contracts import EngineFailure
from gateway.dialects.base import Usage
from gateway.dialects.decoder import EngineDecoder
from gateway.dialects.events import Counted, End, Event, Refusal, Text, Think, ToolArgs, ToolOpen
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.stops import StopMatcher
from gateway.dialects.target import Target
from gateway.dialects.tools import strict_names
from gateway.errors import GatewayError


class Encoder(Protocol):
    """Writes canonical events in a dialect. Methods return client bytes."""

    def opening(self) -> bytes:
        """The events that begin a stream; asked for once, just before the first event or heartbeat."""
        ...

    def event(self, event: Event) -> bytes:
        """One canonical event, never an `End` before the deltas of its choice are through."""
        ...

    def closing(self, usage: Usage) -> bytes:
        """All choices have ended: what ends the stream, or the whole answer of a client that does not stream."""
        ...

    def failing(self, error: GatewayError) -> bytes:
        """The stream ends in an error."""
        ...

    def keepalive(self) -> bytes:
        """A heartbeat; b"" where there is none."""
        ...


class _Answer:
    """Stop matching on one choice's answer text, with the log probabilities of what is shown."""

    __slots__ = ("_covered", "_entries", "_shown", "cut", "matcher", "tools")

    def __init__(self, matcher: StopMatcher | None) -> None:
        self.matcher = matcher
        self.cut = False  # a stop matched: the rest of this choice is dropped
        self.tools = False  # a tool call was opened
        self._entries: list[Any] = []  # log probabilities of text that is held back
        self._shown = self._covered = 0  # characters shown, and characters the entries handed out stand for

    def text(self, event: Text) -> list[Event]:
        """What may be shown of the answer now."""
        if self.matcher is None:
            return [event]
        self._entries += event.logprobs or ()
        shown = self.matcher.feed(event.text)
        self.cut = self.matcher.matched is not None
        return self._cut_to(shown, event.choice)

    def rest(self, choice: int) -> list[Event]:
        """What was held back, when the answer has ended."""
        if self.matcher is None:
            return []
        shown = self._cut_to(self.matcher.flush(), choice)
        self.cut = self.matcher.matched is not None
        return shown

    def _cut_to(self, shown: str, choice: int) -> list[Event]:
        if not shown:
            return []
        self._shown += len(shown)
        count = 0
        for entry in self._entries:
            length = len(entry.get("token", "")) if isinstance(entry, dict) else 0
            if self._covered + length > self._shown:
                break
            self._covered += length
            count += 1
        entries, self._entries = self._entries[:count], self._entries[count:]
        return [Text(shown, choice, entries or None)]


class Rewriting:
    """A `Transcoder` made of an engine decoder and an encoder."""

    def __init__(
        self,
        encoder: Encoder,
        request: Request,
        target: Target,
        ids: Ids,
        *,
        upstream_stream: bool,
        hide_reasoning: bool,
        stops: tuple[str, ...],
        keep_stop: bool = False,
    ) -> None:
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self._encoder = encoder
        self._decoder = EngineDecoder(target.frame_failure, ids.call, strict_names(request.tools))
        self._ids = ids
        self._client_stream = request.stream
        self._choices = request.traits.n
        self._whole: list[bytes] | None = None if upstream_stream else []
        self._hide = hide_reasoning
        self._matcher: Callable[[], StopMatcher | None] = lambda: StopMatcher(stops, keep=keep_stop) if stops else None
        self._answers: dict[int, _Answer] = {}
        self._window = target.window
        self._deltas = 0
        self._closed = False
        self._sniffed = False

    def feed(self, data: bytes) -> bytes:
        """See `Transcoder.feed`."""
        if self._whole is None and not self._sniffed and data:
            self._sniffed = True
            if data.lstrip()[:1] == b"{":  # an engine that answers a request for a stream with one JSON body
                self._whole = []
        if self._whole is not None:
            self._whole.append(data)
            return b""
        if self._closed or self.failure is not None:
            return b""
        out = self._events(self._decoder.feed(data))
        self.failure = self._decoder.failure
        self.finished = self._decoder.finished(self._choices)
        if self._client_stream and (self.abort_engine or (self._decoder.done and self.finished)):
            out += self._close()
        return out

    def eof(self) -> bytes:
        """See `Transcoder.eof`."""
        if self._closed or self.failure is not None:
            return b""
        out = b""
        if self._whole is not None:
            out = self._events(self._decoder.whole(b"".join(self._whole)))
        if self._decoder.failure is None:
            return out + self._close()
        self.failure = self._decoder.failure
        return out

    def fail(self, error: GatewayError) -> bytes:
        """See `Transcoder.fail`."""
        return self._opening() + self._encoder.failing(error)

    def keepalive(self) -> bytes:
        """See `Transcoder.keepalive`."""
        return self._opening() + self._encoder.keepalive() if self._client_stream else b""

    def _opening(self) -> bytes:
        if self._ids.opened:
            return b""
        self._ids.opened = True
        return self._encoder.opening()

    def _events(self, events: list[Event]) -> bytes:
        out: list[bytes] = []
        for event in events:
            if isinstance(event, Counted):
                self.usage = event.usage
                continue
            if not self.started:
                self.started = True
                out.append(self._opening())
            out += map(self._encoder.event, self._shown(event))
        return b"".join(out)

    def _shown(self, event: Think | Text | Refusal | ToolOpen | ToolArgs | End) -> list[Event]:
        """What the client is shown of one of the engine's events."""
        answer = self._answers.get(event.choice)
        if answer is None:
            answer = self._answers[event.choice] = _Answer(self._matcher())
        self._deltas += 1
        if answer.cut:
            return []
        if isinstance(event, Text):
            shown = answer.text(event)
            cuts = [other.cut for other in self._answers.values()]
            self.abort_engine = all(cuts) and len(cuts) >= self._choices
            return shown
        if isinstance(event, Think):
            return [] if self._hide else [event]
        if isinstance(event, ToolOpen):
            answer.tools = True
        return [event]

    def _close(self) -> bytes:
        """End every choice and the answer."""
        ends = [] if self.abort_engine else self._decoder.finish()
        if self._decoder.failure is not None:
            self.failure = self._decoder.failure
            return b""
        out = [self._opening()]
        self.started = self.finished = self._closed = True
        self.usage = self.usage or Usage(completion=self._deltas, estimated=True)
        for index, answer in self._answers.items():
            out += map(self._encoder.event, answer.rest(index))
        for end in self._ends(ends):
            if end.stop == "length" and self._full(self.usage):
                end = End("context", end.sequence, end.choice)
            if self.finish is None or end.choice == 0:
                self.finish = end.stop
            out.append(self._encoder.event(end))
        out.append(self._encoder.closing(self.usage))
        return b"".join(out)

    def _full(self, usage: Usage) -> bool:
        """Whether prompt and output have filled the model's window: then that is why the answer was cut."""
        full = self._window is not None and usage.prompt + usage.completion >= self._window
        return full and self._choices == 1 and not usage.estimated

    def _ends(self, ends: list[End]) -> list[End]:
        """The engine's ends, or ours where a stop matched."""
        cut = {index: self._matched(index, answer) for index, answer in sorted(self._answers.items()) if answer.cut}
        return list(cut.values()) if self.abort_engine else [cut.get(end.choice, end) for end in ends]

    def _matched(self, index: int, answer: _Answer) -> End:
        """A stop that matched after complete tool calls leaves them to be run."""
        if answer.tools or answer.matcher is None:
            return End("tool", None, index)
        return End("stop_sequence", answer.matcher.matched, index)
