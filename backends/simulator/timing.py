"""The two things an engine does: a step that prefills, and a run of equal decode steps. Pure arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from backends.profiles import Profile
from backends.simulator.requests import Cached, SimRequest

_EPSILON = 1e-9


@dataclass(slots=True, eq=False)
class Run:
    """A request inside the engine."""

    request: SimRequest
    order: int
    cached: Cached
    computed: int = 0  # prompt tokens in the GPU cache
    stepped: int = 0  # decode steps since the first token
    produced: int = 0  # tokens that were reported
    pinned: list[Any] = field(default_factory=list)
    unnamed: int = 0
    known: bool = False  # the scheduler loop has taken it in
    loaded: bool = False  # its restore is over
    aborted: bool = False
    cost_s: float = 0.0  # prefill still ahead, as estimated at arrival

    @property
    def queue_key(self) -> tuple[bool, int, int]:
        """Order in the waiting queue: restored ones first, then by priority and arrival."""
        return (not self.loaded, self.request.priority, self.order)

    def steps_left(self, tokens_per_step: float) -> int:
        """Decode steps until the last token."""
        needed = (self.request.output_tokens - 1) / tokens_per_step
        return max(math.ceil(needed - _EPSILON) - self.stepped, 0)

    def tokens_after(self, steps: int, tokens_per_step: float) -> int:
        """Tokens produced in all once `steps` more decode steps are done."""
        made = 1 + math.floor((self.stepped + steps) * tokens_per_step + _EPSILON)
        return min(made, self.request.output_tokens)


@dataclass(slots=True)
class Hold:
    """The scheduler loop stands still: it takes a request in, or a copy has the device."""

    end: float


@dataclass(slots=True)
class PrefillStep:
    """One step that takes each part's prompt up to a token, while `streams` decode along."""

    start: float
    end: float
    parts: list[tuple[Run, int]]
    streams: list[Run]


@dataclass(slots=True)
class DecodeRun:
    """`planned` steps of one batch. Step k costs first_s + k * growth_s, since every stream's context grows."""

    start: float
    first_s: float
    growth_s: float
    streams: list[Run]
    planned: int
    emitted: int = 0  # steps already reported by partial progress

    @property
    def end(self) -> float:
        """When the last planned step is done."""
        return self.at(self.planned)

    def at(self, steps: int) -> float:
        """When `steps` steps are done."""
        return self.start + steps * self.first_s + self.growth_s * (steps * (steps - 1) / 2)

    def done_by(self, now: float) -> int:
        """Whole steps done by `now`, at most the planned ones."""
        if self.end <= now:
            return self.planned
        steps = self._solve(now - self.start)
        while steps > 0 and self.at(steps) > now:
            steps -= 1
        while self.at(steps + 1) <= now:
            steps += 1
        return steps

    def cut(self, now: float) -> None:
        """Plan no step that begins after `now`, so that newcomers are seen at the next boundary."""
        done = self.done_by(now)
        boundary = done if self.at(done) >= now else done + 1
        self.planned = min(self.planned, max(boundary, self.emitted))

    def _solve(self, span: float) -> int:
        if span <= 0:
            return 0
        half = self.first_s - self.growth_s / 2
        if self.growth_s <= 0:
            return int(span / self.first_s)
        return int((math.sqrt(half * half + 2 * self.growth_s * span) - half) / self.growth_s)


def prefill_cost(profile: Profile, parts: list[tuple[Run, int]], streams: int, context: int, through: bool) -> float:
    """Seconds of a step that prefills `parts` and decodes `streams`; `through` adds the stores to lower tiers."""
    cost = profile.prefill_step_s
    if streams:
        cost += profile.decode_s(streams, context)
    for run, upto in parts:
        cost += profile.prefill_s(run.computed, upto)
        if through and upto > run.computed:
            first = profile.write_through_s if run.computed == run.cached.total else 0.0
            cost += first + profile.write_through_per_token_s * (upto - run.computed)
    return cost
