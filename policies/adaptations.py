"""Changes to a request so that a pool can serve it, always shown to the client."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from backends.capabilities import PRIORITY, REASONING_OFF, STOP, THINKING_BUDGET, Capabilities
from backends.contract import EFFORTS
from policies.fields import EFFORT, field_of
from policies.traits import RequestTraits


class Adaptation(msgspec.Struct, frozen=True, gc=False):
    """One change: `effective` is sent instead, "" when the field is left out; `exact`: the answer is as asked."""

    field: str  # as the client's dialect spells it
    requested: str
    effective: str
    reason: str
    exact: bool = False

    def __str__(self) -> str:
        return f"{self.field}={self.effective or 'dropped'};requested={self.requested}"


def header(adaptations: Iterable[Adaptation]) -> str:
    """The value of `x-gateway-adapted`."""
    return ", ".join(str(change) for change in adaptations)


def all_exact(adaptations: Iterable[Adaptation]) -> bool:
    """Whether the client gets the answer it asked for."""
    return all(change.exact for change in adaptations)


def adapt(traits: RequestTraits, pool: Capabilities) -> tuple[Adaptation, ...]:
    """All changes that a pool needs which did not refuse the request; () when it can serve it as it is."""
    changes: list[Adaptation] = []
    missing = traits.needs & ~pool.bits
    if missing & REASONING_OFF:
        changes.append(_hidden(traits, pool))
    elif traits.effort is not None and not traits.needs & REASONING_OFF:
        changes.extend(_effort(traits, traits.effort, pool))
    if missing & STOP:
        why = "the engine also matches stop strings in reasoning: the gateway matches them in the answer"
        changes.append(Adaptation(field_of(STOP, traits.dialect), "engine", "gateway", why, exact=True))
    if missing & PRIORITY:
        changes.append(Adaptation("priority", "set", "", "the engine does not order its queue by priority", exact=True))
    if missing & THINKING_BUDGET:
        why = "the engine enforces no limit on reasoning tokens"
        changes.append(Adaptation(field_of(THINKING_BUDGET, traits.dialect), "set", "", why, exact=True))
    return tuple(changes)


def real_effort(asked: str, efforts: tuple[str, ...]) -> str | None:
    """The effort to run for the one asked: the weakest real one that is at least as strong, else the strongest.

    None when the pool has no effort control. An effort that is not in `EFFORTS` counts as the strongest.
    """
    if not efforts:
        return None
    if asked in efforts:
        return asked
    strength = EFFORTS.index(asked) if asked in EFFORTS else len(EFFORTS)
    for effort in efforts:
        if effort in EFFORTS and EFFORTS.index(effort) >= strength:
            return effort
    return efforts[-1]


def _effort(traits: RequestTraits, asked: str, pool: Capabilities) -> list[Adaptation]:
    if pool.efforts is None or asked in pool.efforts:
        return []
    effective = real_effort(asked, pool.efforts)
    name = field_of(EFFORT, traits.dialect)
    if effective is None:
        return [Adaptation(name, asked, "ignored", "the pool's model has no reasoning efforts")]
    instead = pool.default_effort or pool.efforts[-1]
    return [Adaptation(name, asked, effective, f"the pool would run {asked} at {instead}")]


def _hidden(traits: RequestTraits, pool: Capabilities) -> Adaptation:
    """Reasoning cannot be off: the weakest effort, and none of it shown."""
    weakest = pool.efforts[0] if pool.efforts else pool.default_effort
    why = "the pool's model always reasons: its reasoning is kept short and not shown"
    return Adaptation(field_of(EFFORT, traits.dialect), "none", weakest or "hidden", why)
