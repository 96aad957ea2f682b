"""What goes into the pure engine and what comes out of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from backends.contracts import Tier
from backends.simulator.kvcache import Block

FinishReason = Literal["length", "abort"]


@dataclass(frozen=True, slots=True)
class SimRequest:
    """One prompt with a known answer length.

    `blocks` are chain ids of the full blocks of the prompt, first to last, and may go on over the answer: those are
    cached when the request ends. A shorter list means that the rest is never cached.
    """

    id: str
    prompt_tokens: int
    output_tokens: int
    blocks: Sequence[Block] = ()
    priority: int = 0  # lower is sooner; callers turn an engine's own order into this one
    load_from: frozenset[Tier] = frozenset({"host", "fs"})
    tokens: Sequence[int] = ()  # prompt and answer ids, only to fill the KV events
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Cached:
    """Prompt tokens found per tier, each tier counting only what the tiers above it lack."""

    gpu: int = 0
    host: int = 0
    fs: int = 0

    @property
    def total(self) -> int:
        """Tokens that need no prefill."""
        return self.gpu + self.host + self.fs


@dataclass(slots=True)
class Progress:
    """`tokens` new tokens of one request at time `at_s`. The last one carries `finish`."""

    request: SimRequest
    tokens: int
    at_s: float
    first: bool = False
    finish: FinishReason | None = None
    cached: Cached = field(default_factory=Cached)


@dataclass(frozen=True, slots=True)
class Stored:
    """Consecutive blocks became cached in a tier. `parent` precedes the first of them, None at the start."""

    tier: Tier
    blocks: Sequence[Block]
    parent: Block | None
    tokens: Sequence[int] = ()  # ids of all the blocks' tokens; empty when the request gave none
    salt: str = ""


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks left a tier."""

    tier: Tier
    blocks: Sequence[Block]


@dataclass(frozen=True, slots=True)
class Cleared:
    """The caches were reset."""


KvEvent = Stored | Removed | Cleared


class QueueFullError(Exception):
    """The engine's queue limit is reached; nothing was taken in."""
