"""One run of probes against one replica: what is spent, what is found."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from backends.contract import Fact, Source, Terms
from backends.contracts import Clock
from backends.engines.base import EngineKind
from backends.engines.jsonfacts import decoded, inner, objects
from backends.probing.client import Answer, ProbeClient

PROMPT: Final = "Count from one to twenty in words."
CHAT: Final = "/v1/chat/completions"


@dataclass(frozen=True, slots=True)
class Budget:
    """What one run may cost an engine. Tokens are prompt and completion together."""

    requests: int = 64
    tokens: int = 16_384


class BudgetSpentError(Exception):
    """The run has used its budget: what was not probed stays as it was known."""


@dataclass(frozen=True, slots=True)
class Check:
    """One golden probe: passed, failed, or None when it showed nothing (an error, too few tokens)."""

    name: str
    passed: bool | None
    evidence: str


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """A chat answer taken apart. `error` is the engine's scrubbed message when `status` is not 200."""

    status: int
    message: Mapping[str, Any] = field(default_factory=dict)
    choice: Mapping[str, Any] = field(default_factory=dict)
    usage: Mapping[str, Any] = field(default_factory=dict)
    error: str = ""
    numbers: tuple[int, ...] = ()

    @property
    def content(self) -> str:
        """The answer's text."""
        return str(self.message.get("content") or "")

    @property
    def reasoning(self) -> str:
        """The reasoning's text, whatever the engine calls its field."""
        return str(self.message.get("reasoning_content") or self.message.get("reasoning") or "")

    @property
    def cut(self) -> bool:
        """Whether the token limit ended it."""
        return self.choice.get("finish_reason") == "length"

    @property
    def refused(self) -> bool:
        """Whether the engine understood the request and refused it, so that a feature is known to be missing."""
        return self.status in (400, 403, 404, 405, 422, 501)


@dataclass(slots=True)
class Session:
    """The state of a run. Probes `learn` terms and record `checks`; they never raise for what an engine does."""

    client: ProbeClient
    kind: EngineKind
    model: str
    declared: Terms
    clock: Clock
    budget: Budget = Budget()
    found: dict[str, Fact] = field(default_factory=dict)
    checks: list[Check] = field(default_factory=list)
    requests: int = 0
    tokens: int = 0

    async def get(self, path: str) -> Answer:
        """A GET; facts cost requests but no tokens."""
        self._spend()
        return await self.client.get(path)

    async def post(self, path: str, body: Mapping[str, Any]) -> Answer:
        """A POST of anything but chat."""
        self._spend()
        answer = await self.client.post(path, body)
        self._count(decoded(answer.body).get("usage"))
        return answer

    async def chat(self, max_tokens: int, text: str = PROMPT, **fields: Any) -> ChatAnswer:
        """One greedy chat of at most `max_tokens`; other fields go into the body as they are."""
        body = {
            "model": self.model,
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": 0,
            "stream": False,
            **fields,
        }
        return self.read(await self.post(CHAT, body))

    def read(self, answer: Answer) -> ChatAnswer:
        """Take a chat answer apart, errors included."""
        if answer.status != 200:
            failure = self.kind.failure(answer.status, answer.headers.get("content-type", ""), answer.body)
            return ChatAnswer(answer.status, error=failure.message, numbers=failure.numbers)
        data = decoded(answer.body)
        choice = next(iter(objects(data.get("choices"))), {})
        return ChatAnswer(200, inner(choice.get("message")), choice, inner(data.get("usage")))

    def learn(self, term: str, value: Any, evidence: str) -> None:
        """Record a probed value; a later one replaces an earlier one."""
        self.found[term] = Fact(value, Source.PROBED, self.clock.time(), evidence)

    def value(self, term: str) -> Any:
        """What is known of a term so far: probed, else declared, else None."""
        fact = self.found.get(term)
        return fact.value if fact else getattr(self.declared, term)

    def check(self, name: str, passed: bool | None, evidence: str) -> None:
        """Record how a golden probe went."""
        self.checks.append(Check(name, passed, evidence))

    def _spend(self) -> None:
        if self.requests >= self.budget.requests or self.tokens >= self.budget.tokens:
            raise BudgetSpentError
        self.requests += 1

    def _count(self, usage: Any) -> None:
        total = inner(usage).get("total_tokens")
        self.tokens += total if isinstance(total, int) else 0


def json_of(text: str) -> Any:
    """The JSON value of a text, or None."""
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
