"""One run: facts, golden probes, and the contract that comes of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from backends.contract import Contradiction, Fact, PoolContract, Source, build, layer
from backends.contracts import Clock
from backends.engines.base import EngineKind
from backends.probing.client import ProbeClient
from backends.probing.endpoints import probe_endpoints, probe_storage
from backends.probing.facts import read_facts
from backends.probing.features import (
    probe_cached_tokens,
    probe_formats,
    probe_image,
    probe_logprobs,
    probe_tools,
)
from backends.probing.reasoning import (
    probe_efforts,
    probe_plain,
    probe_reasoning_off,
    probe_stop,
    probe_stream,
    probe_tokenizer,
)
from backends.probing.session import Budget, BudgetSpentError, Check, Session

# Later ones build on what earlier ones found; the most telling come first, should the budget end.
GOLDEN: Final[tuple[Callable[[Session], Awaitable[None]], ...]] = (
    probe_plain,
    probe_stream,
    probe_efforts,
    probe_reasoning_off,
    probe_stop,
    probe_tokenizer,
    probe_cached_tokens,
    probe_tools,
    probe_formats,
    probe_logprobs,
    probe_image,
    probe_endpoints,
    probe_storage,
)


@dataclass(frozen=True, slots=True)
class Target:
    """The pool to probe. `declared` and `recipe` are contract terms by name; None values count as not said."""

    pool: str
    kind: EngineKind
    model: str
    declared: Mapping[str, Any] = field(default_factory=dict)
    recipe: Mapping[str, Any] = field(default_factory=dict)
    hold_on_contradiction: bool = False


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """What a run found. `complete` is False when the budget ended it or the engine did not answer at all."""

    contract: PoolContract
    checks: tuple[Check, ...]
    requests: int
    tokens: int
    complete: bool

    @property
    def incidents(self) -> tuple[Contradiction, ...]:
        """Where a probe contradicts the declaration."""
        return self.contract.contradictions


def unprobed(target: Target) -> PoolContract:
    """The contract before any probe: declared values over the recipe's over those of the engine kind."""
    return build(target.pool, target.kind.spec.name, _stated(target))


async def probe_pool(
    target: Target,
    client: ProbeClient,
    *,
    clock: Clock,
    golden: bool = True,
    budget: Budget | None = None,
    earlier: PoolContract | None = None,
) -> ProbeReport:
    """Probe one replica for its pool: fact endpoints, then (with `golden`) tiny generations, within `budget`.

    Nothing an engine does raises. A term that no probe showed keeps the value that an `earlier` run saw, else its
    declared, recipe's or default one.
    """
    declared = unprobed(target).terms
    session = Session(client, target.kind, target.model, declared, clock, budget or Budget())
    complete = True
    try:
        await read_facts(session)
        for probe in GOLDEN if golden else ():
            await probe(session)
    except BudgetSpentError:
        complete = False
    contract = build(
        target.pool,
        target.kind.spec.name,
        [*_stated(target), _seen(earlier), session.found],
        hold_on_contradiction=target.hold_on_contradiction,
    )
    complete = complete and "max_context" in session.found
    return ProbeReport(contract, tuple(session.checks), session.requests, session.tokens, complete)


def _seen(earlier: PoolContract | None) -> Mapping[str, Fact]:
    """What an earlier run probed, also where a pool held out has its declared values in force."""
    if earlier is None:
        return {}
    seen = {term: fact for term, fact in earlier.facts.items() if fact.source is Source.PROBED}
    against = {entry.term: Fact(entry.probed, Source.PROBED, 0.0, entry.evidence) for entry in earlier.contradictions}
    return {**against, **seen}


def _stated(target: Target) -> list[Mapping[str, Fact]]:
    spec = target.kind.spec
    defaults = {
        "endpoints": spec.paths,
        "reasoning_field": spec.reasoning_field,
        "abort_path": spec.abort_path,
        "health_cost": spec.health_cost,
        "model": target.model,
    }
    return [
        layer(defaults, Source.DEFAULT, f"engine kind {spec.name}"),
        layer(target.recipe, Source.RECIPE),
        layer(target.declared, Source.DECLARED),
    ]
