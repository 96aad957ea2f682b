"""What the simulated model says: planned in full before the first token, from the prompt and the seed alone."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from backends.simulator.schema import sample
from backends.simulator.tokenizer import END, END_THINK, WORDS, Tokenizer

Channel = Literal["reasoning", "content", "call", "silent"]
REASONING_WORDS = {"low": 6, "high": 16, "max": 32}
_LONGEST = 1 << 17  # tokens of an answer that nothing else bounds
_TRIGGER = re.compile(r"\b[Cc]all(?::|\s)([A-Za-z0-9_-]+)(\{.*\})?", re.DOTALL)


class Token(NamedTuple):
    """One token of an answer. `text` is "" for tokens that show nothing."""

    id: int
    text: str
    channel: Channel
    call: int = 0  # index of the tool call it belongs to
    opens: bool = False  # the first token of its tool call


@dataclass(frozen=True, slots=True)
class Ask:
    """What the answer depends on."""

    prompt: Sequence[int]
    last_text: str = ""  # the last user message
    effort: str = ""  # "" when the model does not reason
    thinking_budget: int | None = None  # reasoning tokens, then the model must answer
    tools: Sequence[Mapping[str, Any]] = ()
    tool_choice: str = "none"  # none | auto | required | the name of a function
    grammar: Any = None  # JSON schema that the answer must fit
    choices: Sequence[str] = ()  # the answer must be one of these
    max_tokens: int = 1 << 30
    min_tokens: int = 0
    ignore_eos: bool = False
    stop: Sequence[str] = ()
    keep_stop: bool = False


@dataclass(slots=True)
class Answer:
    """A planned answer. `finish` is the engine-neutral reason; `matched` is the stop string that ended it."""

    tokens: list[Token]
    finish: Literal["stop", "length", "tool_calls", "abort"]
    matched: str | None = None
    calls: list[str] = field(default_factory=list)  # function names


class Planner:
    """Plans answers. Equal asks under one seed give equal answers; `variant` tells the choices of one ask apart."""

    def __init__(self, tokenizer: Tokenizer, seed: int) -> None:
        self._tokenizer = tokenizer
        self._seed = seed

    def plan(self, ask: Ask, variant: int = 0) -> Answer:
        """The whole answer."""
        mark = zlib.crc32(repr((self._seed, variant, len(ask.prompt), ask.prompt[-64:])).encode())
        tokens: list[Token] = []
        if ask.effort:
            thought = self._tokens(self._words(mark ^ 0x5EED, REASONING_WORDS[ask.effort]), "reasoning")
            tokens += thought[: ask.thinking_budget]
            tokens.append(Token(END_THINK, "", "reasoning"))
        calls = self._calls(ask)
        for index, (_, arguments) in enumerate(calls):
            tokens += self._tokens(arguments, "call", index)
        if not calls:
            tokens += self._content(ask, mark, len(tokens))
        answer = Answer(tokens, "tool_calls" if calls else "stop", calls=[name for name, _ in calls])
        answer.tokens.append(Token(END, "", "silent"))
        _stop_at(answer, ask)
        if len(answer.tokens) > ask.max_tokens:
            _cut(answer, ask.max_tokens)
        return answer

    def _content(self, ask: Ask, mark: int, before: int) -> list[Token]:
        if ask.choices:
            return self._tokens(ask.choices[0], "content")
        if ask.grammar is not None:
            return self._tokens(json.dumps(sample(ask.grammar), ensure_ascii=False), "content")
        count = 16 + mark % 48
        if ask.ignore_eos:
            count = max(count, min(ask.max_tokens, _LONGEST) - before + 1)
        wanted = min(max(count, ask.min_tokens - before), ask.max_tokens)  # a word is a token at least
        return self._tokens(self._words(mark, wanted), "content")

    def _words(self, mark: int, count: int) -> str:
        words = []
        for _ in range(count):
            mark = (mark * 1_103_515_245 + 12_345) & 0x7FFF_FFFF
            words.append(WORDS[(mark >> 8) % len(WORDS)])
        return " ".join(words)

    def _tokens(self, text: str, channel: Channel, call: int = 0) -> list[Token]:
        return [
            Token(token, shown, channel, call, opens=channel == "call" and at == 0)
            for at, (token, shown) in enumerate(self._tokenizer.pieces(text))
        ]

    def _calls(self, ask: Ask) -> list[tuple[str, str]]:
        """(function name, arguments as JSON): forced by tool_choice, or asked for as call:NAME{...} or "call NAME"."""
        functions = {tool["function"]["name"]: tool["function"] for tool in ask.tools if "function" in tool}
        if not functions or ask.tool_choice == "none":
            return []
        if ask.tool_choice == "auto":
            asked = [match for match in _TRIGGER.finditer(ask.last_text) if match[1] in functions]
            return [(match[1], match[2] or _arguments(functions[match[1]])) for match in asked]
        name = next(iter(functions)) if ask.tool_choice == "required" else ask.tool_choice
        return [(name, _arguments(functions[name]))]


def _arguments(function: Mapping[str, Any]) -> str:
    return json.dumps(sample(function.get("parameters")), ensure_ascii=False)


def _stop_at(answer: Answer, ask: Ask) -> None:
    """End at the earliest stop string, wherever it shows: engines match inside reasoning too."""
    text = "".join(token.text for token in answer.tokens)
    found = [(at + len(stop), at, stop) for stop in ask.stop if stop and (at := text.find(stop)) >= 0]
    if not found:
        return
    end, begin, matched = min(found)
    shown = end if ask.keep_stop else begin
    kept: list[Token] = []
    at = 0
    for token in answer.tokens:
        kept.append(token._replace(text=token.text[: max(shown - at, 0)]))
        at += len(token.text)
        if at >= end:
            break
    if len(kept) <= ask.max_tokens:
        answer.tokens, answer.finish, answer.matched = kept, "stop", matched


def _cut(answer: Answer, limit: int) -> None:
    answer.tokens = answer.tokens[:limit]
    answer.finish = "length"
    answer.matched = None
