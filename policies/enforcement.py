"""The contract filter: may this pool serve this request as it is, with visible adaptations, or not at all."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import msgspec

from backends.capabilities import REASONING_OFF, Capabilities
from policies.adaptations import Adaptation, adapt, all_exact
from policies.refusals import HARD_BITS, Refusal, refuse
from policies.traits import RequestTraits

_NOTHING: Final[Mapping[str, tuple[Adaptation, ...]]] = MappingProxyType({})


class Outcome(enum.Enum):
    """What the filter says of a request over all pools of its model."""

    SERVE = "serve"  # the preferred pool takes it as it is
    ADAPT = "adapt"  # the preferred pool takes it, changed; the client is told
    REROUTE = "reroute"  # the preferred pool cannot or only changed; another one can
    REFUSE = "refuse"  # no pool can


class Verdict(msgspec.Struct, frozen=True):
    """The filter's answer. `eligible` and `spare` keep the order in which the pools were given.

    `spare` pools can serve only with a change that the eligible ones do not need: they are for when no eligible
    replica is left. `adaptations` has an entry for every pool of both that changes something. With `count` some
    window may or may not be too small for the prompt, which is only estimated: counting it would tell.
    """

    outcome: Outcome
    eligible: tuple[str, ...] = ()
    spare: tuple[str, ...] = ()
    adaptations: Mapping[str, tuple[Adaptation, ...]] = _NOTHING
    refusals: tuple[Refusal, ...] = ()
    count: bool = False

    def reason(self) -> Refusal | None:
        """The refusal to tell the client: that of the pool which came closest, if every pool refused."""
        return max(self.refusals, key=lambda refusal: refusal.rank) if self.outcome is Outcome.REFUSE else None


def enforce(traits: RequestTraits, pools: Sequence[Capabilities]) -> Verdict:
    """Filter the pools of a model, in order of preference. Pure; microseconds.

    A pool whose window is or may be too small is never eligible beside a larger one, so no retry can land there.
    Where every window may be too small the largest is tried: the engine then decides.
    """
    room = traits.prompt_max + (traits.max_output or 1)
    output = traits.max_output or 0
    exact: list[str] = []
    changed: dict[str, tuple[Adaptation, ...]] = {}
    lossy: list[str] = []
    refusals: list[Refusal] = []
    unsure: list[Capabilities] = []
    seen: tuple[object, ...] = ()
    adaptations: tuple[Adaptation, ...] = ()
    for pool in pools:
        missing = traits.needs & ~pool.bits
        fits = room <= pool.window and output <= pool.max_output and traits.top_logprobs <= pool.max_logprobs
        reaches = (pool.endpoints is None or traits.endpoint in pool.endpoints) and _has_adapter(traits, pool)
        if missing & HARD_BITS or not fits or not reaches or pool.held:
            refusal = refuse(traits, pool)
            if refusal is not None:
                refusals.append(refusal)
                if refusal.uncertain:
                    unsure.append(pool)
        elif not missing and (traits.effort is None or _effort_is_real(traits, pool)):
            exact.append(pool.pool)
        else:
            # Pools of one model mostly need the same changes: they are worked out once.
            key = (missing, pool.efforts, pool.default_effort)
            if key != seen:
                seen, adaptations = key, adapt(traits, pool)
            changed[pool.pool] = adaptations
            (exact if all_exact(adaptations) else lossy).append(pool.pool)
    if unsure and not exact and not lossy:
        return _largest(traits, pools, unsure, refusals)
    return _verdict(pools, exact, lossy, changed, refusals, count=bool(unsure))


def _largest(
    traits: RequestTraits,
    pools: Sequence[Capabilities],
    unsure: list[Capabilities],
    refusals: list[Refusal],
) -> Verdict:
    """Only windows that may be too small: those of the largest size take it as if it fitted."""
    window = max(pool.window for pool in unsure)
    largest = [pool for pool in unsure if pool.window == window]
    found = enforce(traits.counted(traits.prompt_min), largest)
    taken = {*found.eligible, *found.spare}
    outcome = found.outcome if pools[0].pool in found.eligible[:1] else Outcome.REROUTE
    rest = tuple(refusal for refusal in refusals if refusal.pool not in taken)
    return msgspec.structs.replace(found, outcome=outcome, refusals=rest, count=True)


def _has_adapter(traits: RequestTraits, pool: Capabilities) -> bool:
    return traits.lora is None or pool.loras is None or traits.lora in pool.loras


def _effort_is_real(traits: RequestTraits, pool: Capabilities) -> bool:
    if traits.needs & REASONING_OFF:  # its bit was compared already
        return True
    return pool.efforts is None or traits.effort in pool.efforts


def _verdict(
    pools: Sequence[Capabilities],
    exact: list[str],
    lossy: list[str],
    changed: Mapping[str, tuple[Adaptation, ...]],
    refusals: list[Refusal],
    *,
    count: bool,
) -> Verdict:
    eligible = exact or lossy
    if not eligible:
        return Verdict(Outcome.REFUSE, refusals=tuple(refusals), count=count)
    if pools[0].pool != eligible[0]:
        outcome = Outcome.REROUTE
    else:
        outcome = Outcome.ADAPT if eligible[0] in changed else Outcome.SERVE
    spare = tuple(lossy) if exact else ()
    return Verdict(outcome, tuple(eligible), spare, changed or _NOTHING, tuple(refusals), count)
