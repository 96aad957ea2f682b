"""What goes into and comes out of `KvService`."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from backends.contracts import DialectName
from tiering.hashing.scheme import PLAIN, Extras

if TYPE_CHECKING:  # a gateway that looks up nothing needs the words, not what they stand for
    from backends.located import Located
    from tiering.chain import Chain
    from tiering.events.verify import HashCheck
    from tiering.hashing.memo import ChainHasher
    from tiering.hashing.scheme import Tokens
    from tiering.index.memory import I64
    from tiering.tokens import ChatTokenizer
    from tiering.truth.accuracy import Prediction

BYTES_PER_TOKEN = 4.0  # until a pool's own ratio is known
_RATIO_WEIGHT = 0.05  # of the latest exchange, in bytes per token


@dataclass(frozen=True, slots=True)
class Prompt:
    """What of a request decides where its prompt is cached. `segments` are bytes as the client sent them."""

    model: str
    tenant: str
    dialect: DialectName
    segments: Sequence[bytes]  # messages, or the one prompt
    tools: bytes = b""
    messages: Callable[[], Sequence[Mapping[str, Any]]] | None = None  # of the body that goes to the engine
    variables: Mapping[str, Any] = field(default_factory=dict)  # tools, chat_template_kwargs: for the template
    token_ids: Tokens | None = None  # where the client sent ids
    extras: Extras = PLAIN  # the salt the engine gets, adapter, media

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(map(len, self.segments))


@dataclass(slots=True)
class PoolKv:
    """What is known of one pool's hashing. Without `hasher` or `tokenizer` it is looked up by text."""

    name: str
    hasher: ChainHasher | None = None
    tokenizer: ChatTokenizer | None = None
    check: HashCheck | None = None
    bytes_per_token: float = BYTES_PER_TOKEN
    exact: bool = True  # as it was at the last look, so that a change is told once
    block: int = 0  # tokens of an engine block: the most that divides all cached counts so far; 0: too few came
    _cached: int = 0  # the last such count

    def learn(self, size: int, cached: int, tokens: int) -> None:
        """Take in what an engine says of a prompt of `size` bytes: how long it is and how much it had, in tokens."""
        if tokens and size:
            self.bytes_per_token += _RATIO_WEIGHT * (size / tokens - self.bytes_per_token)
        if cached and cached != self._cached:  # one count, again and again, may be many blocks
            self.block = math.gcd(self.block, cached, self._cached) if self._cached else 0
            self._cached = cached

    def shares_with(self, other: PoolKv) -> bool:
        """Whether a prompt has the same chain in both pools."""
        return self.hasher is other.hasher and self.tokenizer is other.tokenizer


@dataclass(frozen=True, slots=True)
class PoolPrompt:
    """One prompt as one pool hashes it."""

    pool: PoolKv
    chain: Chain
    tokens: Tokens | None  # None: not tokenised, the chain is over text


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Where one pool has one prompt."""

    prompt: PoolPrompt
    reach: I64  # (len(TIERS), rows), of the pool's rows
    dp_rank: I64 | None


@dataclass(frozen=True, slots=True)
class Plan:
    """One prompt in all pools that may serve it."""

    prompt: Prompt
    located: Located
    pools: Mapping[str, PoolPlan]


@dataclass(frozen=True, slots=True)
class Expected:
    """What was promised when an attempt was dispatched."""

    prompt: Prompt
    here: PoolPrompt
    prediction: Prediction
    age_s: float | None  # since the same beginning was last sent there; None: never, or it is still being computed
