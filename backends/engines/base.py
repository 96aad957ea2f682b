"""What an engine kind has to say of itself. A new kind is one file beside this one plus its mirrored test."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from backends.contracts import EngineFailure, Load
from backends.counters import Counters
from backends.engines.handover import Handover


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """Facts of one kind that need no code. Paths start with "/"; an empty path means the kind has none."""

    name: str
    ready_path: str  # cheap readiness: 200 means it takes requests
    load_path: str  # what `parse_load` reads
    abort_path: str  # POST {rid_field: rid} ends a request; empty: closing the connection is enough
    rid_field: str  # body field that names the request inside the engine
    reasoning_field: str  # delta/message field that carries reasoning
    idle_limit_s: float  # reuse a pooled connection only when idle for less than this
    lower_priority_first: bool  # the engine's `priority` order
    counters_path: str = ""  # what `parse_counters` reads
    paths: frozenset[str] = frozenset()  # POST endpoints that this kind serves
    fact_paths: tuple[str, ...] = ()  # GET: what `facts` reads, beside /v1/models, /version and /openapi.json
    cached_tokens_flag: str = ""  # the flag without which usage does not tell cached tokens
    health_cost: Literal["flag", "generation"] = "flag"  # of one GET of `ready_path`


class EngineKind(Protocol):
    """One kind of engine server."""

    spec: EngineSpec
    handover: Handover | None  # how two servers make a prefill/decode pair; None when they cannot

    def parse_load(self, body: bytes, now_s: float) -> Load:
        """Read the body of `spec.load_path`. Unknown or missing figures stay 0; never raises."""
        ...

    def parse_counters(self, body: bytes) -> Counters:
        """Read the body of `spec.counters_path`. Unknown, missing or negative figures stay 0; never raises."""
        ...

    def failure(self, status: int, content_type: str, body: bytes, retry_after: str = "") -> EngineFailure:
        """Classify an HTTP answer with status >= 400 (all shapes this engine is known to send).

        `retry_after` is the header as received. In the result `numbers` is (prompt, limit) or (prompt, output, limit)
        tokens when `code` is "context_length_exceeded".
        """
        ...

    def frame_failure(self, payload: bytes) -> EngineFailure | None:
        """Classify one SSE `data:` payload or JSON body that came with status 200; None when it is no error."""
        ...

    def facts(self, path: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
        """Contract terms (names of `backends.contract.Terms`) told by one of `spec.fact_paths` or by /version.

        Header names are lower-case. What is missing or unreadable is left out; never raises.
        """
        ...

    def constrained(self, form: Literal["regex", "grammar"], text: str) -> Mapping[str, Any]:
        """Chat body fields that bind the answer to a regular expression or an EBNF grammar."""
        ...


class Registry:
    """Write-once table of engine kinds; a duplicate name raises."""

    __slots__ = ("_kinds",)

    def __init__(self) -> None:
        self._kinds: dict[str, EngineKind] = {}

    def register(self, kind: EngineKind) -> None:
        """Add a kind under `kind.spec.name`."""
        if kind.spec.name in self._kinds:
            raise ValueError(f"engine kind {kind.spec.name!r} is registered twice")
        self._kinds[kind.spec.name] = kind

    def __getitem__(self, name: str) -> EngineKind:
        return self._kinds[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._kinds)

    def view(self) -> Mapping[str, EngineKind]:
        """All kinds by name."""
        return dict(self._kinds)
