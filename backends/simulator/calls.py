"""A generation request, read from the body once, and its choices on their way through the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backends.simulator.answers import Answer, Ask, Channel, Token
from backends.simulator.driver import Feed
from backends.simulator.requests import Cached

Kind = Literal["chat", "completions"]


@dataclass(slots=True)
class Call:
    """What was asked. `prompts` holds token ids: one for chat, one or more for completions."""

    kind: Kind
    body: Mapping[str, Any]
    id: str
    model: str
    created: int
    prompts: Sequence[Sequence[int]]
    asks: Sequence[Ask]
    n: int = 1
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False
    logprobs: int | None = None  # top entries per token; None: no logprobs
    return_ids: bool = False
    salt: str = ""
    priority: int = 0  # lower is sooner
    reasoning: bool = False  # the model reasons
    report_cached: bool = False  # the server was told to say how much was cached
    choices: list[Choice] = field(default_factory=list)


@dataclass(slots=True)
class Choice:
    """One answer of a call, and how far the engine has come with it."""

    index: int
    prompt: Sequence[int]
    answer: Answer
    feed: Feed
    mark: int = 0  # 64 bits that tell this choice's tool call ids from all others
    echo: str = ""  # text that comes before the answer's
    sent: int = 0  # tokens handed on

    def take(self, count: int) -> list[Token]:
        """The next `count` tokens."""
        taken = self.answer.tokens[self.sent : self.sent + count]
        self.sent += len(taken)
        return taken

    @property
    def said(self) -> list[Token]:
        """The tokens handed on so far."""
        return self.answer.tokens[: self.sent]

    def text(self, channel: Channel, call: int = 0) -> str:
        """What a channel has shown so far."""
        return "".join(token.text for token in self.said if token.channel == channel and token.call == call)

    @property
    def called(self) -> list[tuple[str, str]]:
        """(function name, arguments so far) of every tool call that has begun."""
        opened = [token.call for token in self.said if token.opens]
        return [(self.answer.calls[index], self.text("call", index)) for index in opened]

    @property
    def aborted(self) -> bool:
        """Whether the engine gave up on it."""
        return self.feed.finish == "abort" or self.answer.finish == "abort"


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of a call so far."""

    prompt: int
    completion: int
    reasoning: int
    cached: Cached
    created: int  # prompt tokens that became cached blocks


def usage_of(call: Call, block: int) -> Usage:
    """Counts over all choices; the prompt counts once per prompt, as in the engines."""
    heads = call.choices[:: call.n]
    first = [choice.feed.cached for choice in heads]
    cached = Cached(sum(c.gpu for c in first), sum(c.host for c in first), sum(c.fs for c in first))
    prompt = sum(map(len, call.prompts))
    return Usage(
        prompt=prompt,
        completion=sum(choice.sent for choice in call.choices),
        reasoning=sum(token.channel == "reasoning" for choice in call.choices for token in choice.said),
        cached=cached,
        created=max(sum(len(p) // block * block for p in call.prompts) - cached.total, 0),
    )
