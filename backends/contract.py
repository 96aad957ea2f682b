"""What a pool really can do: every value with its source. Standard library only.

A value that nobody declared and no probe saw is None: enforcement then lets the engine answer for itself, except
where silence is dangerous (video: only where it was validated).
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, Literal

Modality = Literal["text", "image", "video", "audio"]
ToolMode = Literal["auto", "required", "named"]
Format = Literal["json_object", "json_schema", "regex", "grammar"]
StopScope = Literal["answer", "everything"]  # everything: a stop string also ends the answer while it still reasons
HealthCost = Literal["flag", "generation"]
EFFORTS: Final = ("none", "minimal", "low", "medium", "high", "xhigh", "max")  # weakest first


class Source(enum.Enum):
    """Where a value comes from, strongest last."""

    DEFAULT = "default"  # what this engine kind does unless told otherwise
    RECIPE = "recipe"
    DECLARED = "declared"
    PROBED = "probed"


@dataclass(frozen=True, slots=True)
class Terms:
    """The values of a contract. None: unknown. Tokens for lengths."""

    endpoints: frozenset[str] | None = None  # POST paths
    dialects: frozenset[str] | None = None  # dialects that the engine itself speaks
    frontend: str | None = None  # python, rust
    modalities: frozenset[Modality] | None = None  # what the frontend takes in, text included
    reasoning: bool | None = None
    reasoning_field: str | None = None  # field of message and delta; "" when the pool never reasons
    reasoning_off: bool | None = None  # whether reasoning can be switched off
    efforts: tuple[str, ...] | None = None  # the efforts that really differ, weakest first; () without effort control
    default_effort: str | None = None  # what the engine runs when none is asked, or one that is not real
    thinking_budget: bool | None = None  # an enforced limit on reasoning tokens
    stop_scope: StopScope | None = None
    tool_parser: str | None = None
    tool_modes: frozenset[ToolMode] | None = None
    formats: frozenset[Format] | None = None  # structured output
    logprobs: int | None = None  # largest top_logprobs; 0: none
    storage: bool | None = None  # the engine keeps responses
    max_context: int | None = None
    max_output: int | None = None
    tokenizer: str | None = None  # fingerprint: equal means that texts give the same ids
    loras: frozenset[str] | None = None
    cached_tokens: bool | None = None  # usage tells how much of the prompt was cached
    cached_tokens_flag: str | None = None  # the engine flag to set when it does not; "" when nothing is missing
    priority: bool | None = None  # the engine orders its queue by priority
    abort_path: str | None = None  # "" when closing the connection is the way
    health_cost: HealthCost | None = None
    model: str | None = None
    revision: str | None = None  # of the weights
    version: str | None = None  # of the engine
    gpu: str | None = None
    gpus: int | None = None
    precision: str | None = None
    kv_dtype: str | None = None
    block_size: int | None = None  # tokens per KV block or page
    kv_layout: str | None = None  # HND, NHD, page_first ...
    conv_layout: str | None = None  # layout of convolution states in hybrid models: DS, SD
    spec_method: str | None = None  # "" without speculative decoding
    spec_tokens: int | None = None
    hash_algorithm: str | None = None  # of prefix-cache blocks
    hash_seed: str | None = None


TERMS: Final = tuple(entry.name for entry in fields(Terms))


@dataclass(frozen=True, slots=True)
class Fact:
    """One value of a contract and where it came from. `at_s` is Unix time, 0.0 when it was not probed."""

    value: Any
    source: Source
    at_s: float = 0.0
    evidence: str = ""  # one line, e.g. "GET /v1/models: max_model_len 4096"


@dataclass(frozen=True, slots=True)
class Contradiction:
    """A probe that saw something else than what was declared."""

    pool: str
    term: str
    declared: Any
    probed: Any
    evidence: str

    def __str__(self) -> str:
        return f"{self.pool}.{self.term}: declared {show(self.declared)}, probed {show(self.probed)} ({self.evidence})"


@dataclass(frozen=True, slots=True)
class PoolContract:
    """A pool's contract: `terms` holds the winning values, `facts` their sources. Every known term has a fact."""

    pool: str
    engine: str
    terms: Terms = Terms()
    facts: Mapping[str, Fact] = field(default_factory=dict)
    contradictions: tuple[Contradiction, ...] = ()
    held: bool = False  # by `probe.on_contradiction: hold`

    def source(self, term: str) -> Source | None:
        """Where a term's value came from; None when it is unknown."""
        fact = self.facts.get(term)
        return fact.source if fact else None


def build(
    pool: str,
    engine: str,
    layers: Iterable[Mapping[str, Fact]],
    *,
    hold_on_contradiction: bool = False,
) -> PoolContract:
    """Join layers of facts: for each term the strongest source wins. Raises ValueError for a term that does not exist.

    A probed value that differs from the declared one is a contradiction; with `hold_on_contradiction` the pool is
    held out and the declared values stay in force until somebody decides.
    """
    facts: dict[str, Fact] = {}
    rank = list(Source)
    layers = list(layers)
    for layer in layers:
        for term, fact in layer.items():
            if term not in TERMS:
                raise ValueError(f"a contract has no term {term!r}")
            known = facts.get(term)
            if fact.value is not None and (known is None or rank.index(fact.source) >= rank.index(known.source)):
                facts[term] = fact
    against = _contradictions(pool, layers)
    held = hold_on_contradiction and bool(against)
    if held:
        facts |= {entry.term: Fact(entry.declared, Source.DECLARED) for entry in against}
    terms = Terms(**{term: fact.value for term, fact in facts.items()})
    return PoolContract(pool, engine, terms, facts, against, held)


def _contradictions(pool: str, layers: Iterable[Mapping[str, Fact]]) -> tuple[Contradiction, ...]:
    declared: dict[str, Fact] = {}
    probed: dict[str, Fact] = {}
    for layer in layers:
        for term, fact in layer.items():
            if fact.value is not None and fact.source in (Source.DECLARED, Source.PROBED):
                (declared if fact.source is Source.DECLARED else probed)[term] = fact
    return tuple(
        Contradiction(pool, term, fact.value, probed[term].value, probed[term].evidence)
        for term, fact in declared.items()
        if term in probed and probed[term].value != fact.value
    )


def layer(values: Mapping[str, Any], source: Source, evidence: str = "") -> dict[str, Fact]:
    """Facts of one source from plain values; None values are left out."""
    return {term: Fact(value, source, evidence=evidence) for term, value in values.items() if value is not None}


def show(value: Any) -> str:
    """A value as people read it: sets sorted, None as "unknown", the empty string and set as "none"."""
    if value is None:
        return "unknown"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, frozenset):
        value = tuple(sorted(value))
    if isinstance(value, tuple):
        return ", ".join(str(item) for item in value) or "none"
    return str(value) or "none"
