"""The cost model: what each replica's work takes, from its profile, corrected by what it really took."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.contracts import TIERS, Expected, FleetSnapshot, Tier
from backends.profiles import DEFAULT_PROFILE, Profile, profile
from policies.cost_model.columns import WIDTH, Col, column
from policies.cost_model.estimator import Multipliers

Floats = NDArray[np.float64]

# Terms of a TTFT that are learned apart, and how wrong the prior of each may be.
FRONT, LINEAR, QUAD, HOST, FS, REMOTE = range(6)
TTFT_SPREAD: Final = (1.0, 1.5, 1.0, 1.0, 1.0, 1.0)
STEP_SPREAD: Final = (1.0, 1.0, 1.0)
QUIET_S: Final = 10.0  # a replica without traffic for so long begins to be given the benefit of the doubt
RELAX_EVERY_S: Final = 1.0
RELAX_SHARE: Final = 0.05  # per second: half is forgiven after 14 s


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What the configuration says of a pool's speed."""

    profile: Profile
    obeys_load_tiers: bool = False  # the engine can be told which tiers to load


class CostModel:
    """Figures of all replicas in columns, aligned with the rows of the newest snapshot.

    Single writer; `columns` may be read at any time. New replicas start from what their pool has learned.
    """

    __slots__ = (
        "_facts",
        "_fallback",
        "_ids",
        "_last_s",
        "_pools",
        "_prior",
        "_relaxed_s",
        "_step",
        "_ttft",
        "columns",
    )

    def __init__(self, facts: Mapping[str, PoolFacts] | None = None) -> None:
        self._facts = dict(facts or {})
        self._fallback = PoolFacts(profile(DEFAULT_PROFILE))
        self._ids: dict[str, int] = {}
        self._pools: tuple[str, ...] = ()
        self._prior: Floats = np.zeros((WIDTH, 0))
        self.columns: Floats = self._prior
        self._ttft = Multipliers(0, TTFT_SPREAD)
        self._step = Multipliers(0, STEP_SPREAD)
        self._last_s: Floats = np.zeros(0)
        self._relaxed_s = 0.0

    def facts(self, pool: str) -> PoolFacts:
        """Prior of a pool; the default profile when the configuration names none."""
        return self._facts.get(pool, self._fallback)

    def align(self, snapshot: FleetSnapshot, now_s: float) -> None:
        """Follow the fleet: keep what is known of replicas that stay, start new ones from their pool."""
        replicas = snapshot.replicas
        ids = {replica.id: row for row, replica in enumerate(replicas)}
        if ids == self._ids:
            return
        old_rows = [self._ids.get(replica.id, -1) for replica in replicas]
        ttft = Multipliers(len(replicas), TTFT_SPREAD)
        step = Multipliers(len(replicas), STEP_SPREAD)
        ttft.take(self._ttft, old_rows, self._start(self._ttft, snapshot))
        step.take(self._step, old_rows, self._start(self._step, snapshot))
        prior = np.zeros((WIDTH, len(replicas)))
        last = np.full(len(replicas), now_s)
        for row, replica in enumerate(replicas):
            facts = self.facts(replica.pool)
            prior[:, row] = column(facts.profile, obeys=facts.obeys_load_tiers)
            if old_rows[row] >= 0:
                prior[Col.PER_STEP, row] = self._prior[Col.PER_STEP, old_rows[row]]
                last[row] = self._last_s[old_rows[row]]
        self._ttft, self._step, self._prior, self._last_s, self._ids = ttft, step, prior, last, ids
        self._pools = tuple(replica.pool for replica in replicas)
        self.columns = np.empty_like(prior)
        self._publish(slice(None))

    def tick(self, now_s: float) -> None:
        """Let replicas that nobody asked for a while drift back to what their pool does."""
        if now_s - self._relaxed_s < RELAX_EVERY_S:
            return
        share = 1.0 - (1.0 - RELAX_SHARE) ** min(60.0, now_s - self._relaxed_s)
        self._relaxed_s = now_s
        quiet = now_s - self._last_s > QUIET_S
        if quiet.any():
            for learned in (self._ttft, self._step):
                usual = self._usual(learned)
                learned.relax(quiet, np.array([usual[pool] for pool in self._pools]), share)
            self._publish(slice(None))

    # --- learning ---

    def first_token(
        self, replica_id: str, expected: Expected, ttft_ms: float, now_s: float, *, cached_tokens: int | None = None
    ) -> None:
        """One exchange got its first token after `ttft_ms`. `cached_tokens` is what the engine says it reused."""
        row = self._ids.get(replica_id)
        if row is None or ttft_ms <= 0.0:
            return
        by_tier = expected.by_tier if cached_tokens is None else _capped(expected.by_tier, cached_tokens)
        terms = self._ttft_terms(row, expected, by_tier)
        waits = min(expected.wait_ms, 0.9 * ttft_ms)
        queued = self._prior[Col.LINEAR, row] * expected.queue_tokens
        doubt = 2.0 * (queued + waits) / max(1e-6, float(terms.sum()) + waits)
        self._ttft.observe(row, terms, ttft_ms - waits, doubt=doubt)
        self._last_s[row] = now_s
        self._publish(row)

    def decoded(
        self, replica_id: str, ms_per_token: float, streams: float, context_tokens: float, now_s: float
    ) -> None:
        """One answer's mean time per output token, with `streams` streams of `context_tokens` in all beside it."""
        row = self._ids.get(replica_id)
        if row is None or ms_per_token <= 0.0:
            return
        prior = self._prior[:, row]
        terms = np.array((prior[Col.STEP], streams * prior[Col.STEP_STREAM], context_tokens * prior[Col.STEP_TOKEN]))
        self._step.observe(row, terms / prior[Col.PER_STEP], ms_per_token)
        self._last_s[row] = now_s
        self._publish(row)

    def restored(self, replica_id: str, tier: Tier, tokens: int, ms: float) -> None:
        """An engine counter says how long one restore from a lower tier took."""
        row = self._ids.get(replica_id)
        if row is None or tokens <= 0 or ms <= 0.0:
            return
        place = TIERS.index(tier) - 1
        terms = np.zeros(len(TTFT_SPREAD))
        terms[HOST + place] = self._restore_ms(row, place, tokens)
        self._ttft.observe(row, terms, ms)
        self._publish(row)

    def accepted(self, replica_id: str, tokens_per_step: float) -> None:
        """An engine counter says how many tokens one decode step yields per stream (1.0 without draft tokens)."""
        row = self._ids.get(replica_id)
        if row is None or tokens_per_step < 1.0:
            return
        before = float(self._prior[Col.PER_STEP, row])
        self._prior[Col.PER_STEP, row] = before + 0.2 * (tokens_per_step - before)
        self._publish(row)

    # --- what was learned ---

    def prediction_error(self) -> Mapping[str, float]:
        """Moving mean of |observed - expected TTFT| / observed, by replica id."""
        return {replica: float(self._ttft.error[row]) for replica, row in self._ids.items()}

    def multipliers(self, replica_id: str) -> Mapping[str, float]:
        """Learned factor on the prior of each term of one replica. Raises KeyError for an unknown one."""
        row = self._ids[replica_id]
        names = ("front", "prefill", "prefill_quadratic", "host", "fs", "remote")
        steps = ("step", "step_stream", "step_token")
        learned = (*self._ttft.weights[row], *self._step.weights[row])
        return {name: float(value) for name, value in zip((*names, *steps), learned, strict=True)}

    # --- inside ---

    def _ttft_terms(self, row: int, expected: Expected, by_tier: tuple[int, ...]) -> Floats:
        prior = self._prior[:, row]
        prompt, cached = expected.prompt_tokens, sum(by_tier)
        fresh = max(0, prompt - cached)
        small = min(float(fresh), float(prior[Col.KNEE]))
        own = small * prior[Col.SMALL] + (fresh - small) * prior[Col.LINEAR]
        terms = np.zeros(len(TTFT_SPREAD))
        terms[FRONT] = prior[Col.FIXED] + prior[Col.FRONT] * min(float(prompt), float(prior[Col.FRONT_CAP]))
        terms[LINEAR] = own + (prior[Col.PREFILL_FIXED] if fresh else 0.0) + expected.queue_tokens * prior[Col.LINEAR]
        terms[QUAD] = prior[Col.QUAD] * (float(prompt) ** 2 - float(prompt - fresh) ** 2)
        for place, tokens in enumerate(by_tier[1:]):
            if tokens > 0:
                terms[HOST + place] = self._restore_ms(row, place, tokens)
        return terms

    def _restore_ms(self, row: int, place: int, tokens: float) -> float:
        prior = self._prior[:, row]
        fixed = prior[Col.RESTORE_FIXED + place] * min(1.0, tokens * prior[Col.RESTORE_RAMP + place])
        moving = tokens * prior[Col.RESTORE_TOKEN + place]
        return float(max(fixed, moving) if prior[Col.OVERLAPS] else fixed + moving)

    def _publish(self, row: int | slice) -> None:
        """Prior times multiplier for one row or all."""
        out, ttft, step = self.columns, self._ttft.weights, self._step.weights
        out[:, row] = self._prior[:, row]
        for names, weight in (
            ((Col.FIXED, Col.FRONT), ttft[row, FRONT]),
            ((Col.PREFILL_FIXED, Col.SMALL, Col.LINEAR), ttft[row, LINEAR]),
            ((Col.QUAD,), ttft[row, QUAD]),
            ((Col.STEP,), step[row, 0]),
            ((Col.STEP_STREAM,), step[row, 1]),
            ((Col.STEP_TOKEN,), step[row, 2]),
        ):
            for name in names:
                out[name, row] *= weight
        for place in range(3):
            out[Col.RESTORE_FIXED + place, row] *= ttft[row, HOST + place]
            out[Col.RESTORE_TOKEN + place, row] *= ttft[row, HOST + place]

    def _start(self, learned: Multipliers, snapshot: FleetSnapshot) -> Floats:
        usual = self._usual(learned)
        fresh = np.ones(learned.weights.shape[1])
        rows = [usual.get(replica.pool, fresh) for replica in snapshot.replicas]
        return np.array(rows).reshape(len(rows), fresh.size)

    def _usual(self, learned: Multipliers) -> Mapping[str, Floats]:
        """Normal for each pool: the median of its replicas' habits, so that a sick one does not speak for all."""
        rows: dict[str, list[int]] = {}
        for row, pool in enumerate(self._pools):
            rows.setdefault(pool, []).append(row)
        return {pool: np.median(learned.habit[members], axis=0) for pool, members in rows.items()}


def _capped(by_tier: tuple[int, ...], cached: int) -> tuple[int, ...]:
    """What the tiers gave when `cached` tokens were reused in all: the fastest first, any surplus from the GPU."""
    out, left = [], cached
    for tokens in by_tier:
        took = min(tokens, left)
        out.append(took)
        left -= took
    out[0] += left
    return tuple(out)
