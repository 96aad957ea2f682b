"""The vocabulary shared by all four packages: replicas, load, leases, failures. Standard library only."""

from __future__ import annotations

import enum
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

DialectName = Literal["chat", "completions", "responses", "messages"]
Tier = Literal["gpu", "host", "fs", "remote"]
TIERS: tuple[Tier, ...] = ("gpu", "host", "fs", "remote")


class Clock(Protocol):
    """Time as decisions see it. Passed in, so that a replay is exact."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin; never goes back."""
        ...

    def time(self) -> float:
        """Seconds since the Unix epoch."""
        ...


class Random(Protocol):
    """The part of `random.Random` that decisions use."""

    def random(self) -> float:
        """A float in [0, 1)."""
        ...

    def randrange(self, stop: int, /) -> int:
        """An int in [0, stop)."""
        ...


class ReplicaState(enum.Enum):
    """Life of a replica as the prober sees it. Only READY takes new exchanges."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    DOWN = "down"
    HELD = "held"  # out by an operator, by its contract, or by its own traffic


@dataclass(frozen=True, slots=True)
class Load:
    """What an engine last said of itself. `at_s` is the monotonic time of the report; 0.0 means never."""

    running: int = 0
    waiting: int = 0
    waiting_uncached_tokens: int = 0
    kv_used: float = 0.0  # share of the KV pool in use, 0..1
    kv_capacity_tokens: int = 0
    at_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Replica:
    """One engine server in a snapshot. `row` is its row in the snapshot's `LoadTable`."""

    id: str  # "pool/0": stable over reloads while the URL stays
    pool: str
    url: str
    row: int
    state: ReplicaState
    dp_ranks: int = 1
    load: Load = Load()
    version: str = ""
    reason: str = ""  # why it is not READY
    adapters: frozenset[str] = frozenset()  # LoRA adapters that are loaded; empty: unknown or none


class LoadTable:
    """Live counters, one row per replica, changed at dispatch and at first token.

    The fleet is the only writer. Columns are `array`, so that policies view them as numpy without a copy.
    """

    __slots__ = ("context_tokens", "exchanges", "prefill_tokens")

    def __init__(self, rows: int) -> None:
        self.exchanges = array("q", bytes(8 * rows))  # exchanges in flight from this gateway
        self.prefill_tokens = array("q", bytes(8 * rows))  # uncached prompt tokens sent, first token not seen
        self.context_tokens = array("q", bytes(8 * rows))  # prompt tokens of all exchanges in flight


@dataclass(frozen=True, slots=True)
class FleetSnapshot:
    """All replicas at one moment. Immutable but for `table`, whose counters move under it on purpose."""

    version: int
    replicas: tuple[Replica, ...]
    by_pool: Mapping[str, tuple[Replica, ...]]
    table: LoadTable


class Fault(enum.Enum):
    """Why an attempt failed. Each member says whose fault it is and whether another replica may do better."""

    CONNECT = "connect"  # nothing was sent
    RESET = "reset"  # the connection broke before the answer was complete
    STALE = "stale"  # a pooled connection was closed by the engine just before use
    TIMEOUT = "timeout"  # connect, first byte, idle or total
    OVERLOADED = "overloaded"  # queue full, 429, 503
    ENGINE = "engine"  # 5xx or an error frame
    TRUNCATED = "truncated"  # the answer ended without a finish reason
    PROTOCOL = "protocol"  # bytes that are not HTTP or not the engine's dialect
    ANSWER = "answer"  # the model broke a promise, e.g. a strict tool's arguments: no sign of a sick server
    CLIENT = "client"  # 4xx that is the request's own fault: never retried


@dataclass(slots=True)
class EngineFailure(Exception):  # noqa: N818 - a failure of an attempt, not a bug
    """One attempt failed. `message` is already scrubbed of paths, addresses and inputs."""

    fault: Fault
    message: str
    status: int = 0  # the engine's HTTP status, 0 when there was none
    param: str | None = None
    code: str | None = None  # OpenAI error code, e.g. "context_length_exceeded"
    retry_after_s: float | None = None
    numbers: tuple[int, ...] = ()  # token counts the engine named, e.g. (prompt, limit)

    @property
    def retryable(self) -> bool:
        """Whether another replica may do better, as long as nothing semantic was sent to the client."""
        return self.fault is not Fault.CLIENT

    def __str__(self) -> str:
        return f"{self.fault.value}: {self.message}"


@dataclass(frozen=True, slots=True)
class Candidate:
    """One replica in a decision: its cost in milliseconds by term, or why it was filtered."""

    replica: str
    cost_ms: float = 0.0
    terms: Mapping[str, float] = field(default_factory=dict)
    filtered: str = ""
    prefill: str = ""  # the replica that would prefill for this one; "" when it does so itself


@dataclass(slots=True)  # not frozen, as `Decision` is not
class Expected:
    """What was known of the chosen replica when it was chosen; given back to the cost model with the real times."""

    prompt_tokens: int
    by_tier: tuple[int, int, int, int]  # prompt tokens expected from each of TIERS
    queue_tokens: float  # uncached prompt tokens ahead
    wait_ms: float  # waits that are no prefill: tier queues, the running step
    ttft_ms: float

    @property
    def cached_tokens(self) -> int:
        """Prompt tokens expected from any tier."""
        return sum(self.by_tier)


@dataclass(slots=True)  # not frozen: that would cost half a microsecond per field and exchange
class Decision:
    """What routing chose and from what. `order` is best first; the first is tried first."""

    policy: str
    order: tuple[Replica, ...]
    candidates: tuple[Candidate, ...] = ()
    predicted_ttft_ms: float = 0.0
    predicted_cached: Mapping[Tier, int] = field(default_factory=dict)
    expected: Expected | None = None  # of order[0]; None from policies that predict nothing
    prefill_tokens: int = 0  # what to count on the lease of order[0]: its uncached prompt tokens
    load_tiers: tuple[Tier, ...] | None = None  # tiers order[0] should load from; None: all that hold something
    dp_rank: int | None = None  # rank of order[0]; None: the engine chooses
    prefill: Replica | None = None  # who prefills for order[0]; then `expected` and `prefill_tokens` are of this one
    # Evidence is built only for a trace that is kept.
    explain: Callable[[], tuple[Candidate, ...]] | None = None
