"""The cost model: what each replica's work takes, from its profile, corrected by what it really took."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Final

import numpy as np

from backends.contracts import TIERS, Expected, FleetSnapshot, Tier
from backends.profiles import DEFAULT_PROFILE, load_profile
from policies.cost_model.columns import KNOTS, WIDTH, Col, Curves, Floats, column, curves
from policies.cost_model.estimator import Multipliers
from policies.cost_model.facts import PoolFacts, Score

# Terms of a TTFT that are learned apart, and how wrong the prior of each may be.
FRONT, SHORT, LONG, HOST, FS, REMOTE = range(6)
TTFT_SPREAD: Final = (1.0, 1.5, 1.0, 1.0, 1.0, 1.0)
STEP_SPREAD: Final = (1.0, 1.0, 1.0)
QUIET_S: Final = 10.0  # a replica without traffic for so long begins to be given the benefit of the doubt
NOVICE: Final = 10  # observations below which a replica is taken for what its pool is
NOVICE_SHARE: Final = 0.5
RELAX_EVERY_S: Final = 1.0
RELAX_SHARE: Final = 0.05  # per second: half is forgiven after 14 s
LATE_SHARE: Final = 1.0  # a first token is late when it takes so much longer than expected, as a share of that ...
LATE_MS: Final = 50.0  # ... and by more than this
# Figure -> place of its multiplier among those of a TTFT and, behind them, those of a decode step.
_LEARNED: Final = (
    dict.fromkeys((Col.PER_TOKEN, Col.PREFILL_FIXED, *(Col.CHUNK_STEP + tier for tier in range(len(TIERS)))), SHORT)
    | {col: len(TTFT_SPREAD) + place for place, col in enumerate((Col.STEP, Col.STEP_STREAM, Col.STEP_TOKEN))}
    | {
        col + tier: HOST + tier
        for col in (Col.RESTORE_LEAST, Col.RESTORE_FIXED, Col.RESTORE_TOKEN)
        for tier in range(len(TIERS) - 1)
    }
)
_FIGURES: Final = np.array(list(_LEARNED))
_SOURCES: Final = np.array(list(_LEARNED.values()))
PREFILL_CURVE, FRONT_CURVE = 0, 1  # kinds of `CostModel.curves`


class CostModel:
    """Figures of all replicas in columns, aligned with the rows of the newest snapshot.

    Single writer; `columns` and `curves` may be read at any time. New replicas start from what their pool has learned.
    `curves` are the time to compute a prompt from nothing and that to the first token of a cached one; what has to be
    computed after p cached tokens takes that much less.
    """

    __slots__ = (
        "_facts",
        "_fallback",
        "_ids",
        "_last_s",
        "_pools",
        "_prior",
        "_prior_curves",
        "_relaxed_s",
        "_step",
        "_ttft",
        "columns",
        "curves",
    )

    def __init__(self, facts: Mapping[str, PoolFacts] | None = None) -> None:
        self._facts = dict(facts or {})
        self._fallback = PoolFacts(load_profile(DEFAULT_PROFILE, "vllm"))
        self._ids: dict[str, int] = {}
        self._pools: tuple[str, ...] = ()
        self._prior: Floats = np.zeros((WIDTH, 0))
        self._prior_curves = Curves.empty(3, 0)  # FRONT, SHORT, LONG
        self.columns: Floats = self._prior
        self.curves = Curves.empty(2, 0)
        self._ttft = Multipliers(0, TTFT_SPREAD)
        self._step = Multipliers(0, STEP_SPREAD)
        self._last_s: Floats = np.zeros(0)
        self._relaxed_s = 0.0

    def declare(self, facts: Mapping[str, PoolFacts]) -> None:
        """Follow a configuration. Replicas that are known already keep what they have learned."""
        self._facts = dict(facts)

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
        drawn = np.zeros((len(KNOTS), 3, len(replicas)))
        pools = {replica.pool: self.facts(replica.pool) for replica in replicas}
        figures = {pool: (_column(facts), curves(facts.profile)) for pool, facts in pools.items()}
        for row, replica in enumerate(replicas):
            prior[:, row], drawn[:, :, row] = figures[replica.pool]
            if old_rows[row] >= 0:
                prior[Col.PER_STEP, row] = self._prior[Col.PER_STEP, old_rows[row]]
                last[row] = self._last_s[old_rows[row]]
        self._ttft, self._step, self._prior, self._last_s, self._ids = ttft, step, prior, last, ids
        self._pools = tuple(replica.pool for replica in replicas)
        self._prior_curves = Curves.through(drawn)
        self.columns, self.curves = np.empty_like(prior), Curves.empty(2, len(replicas))
        self._publish(slice(None))

    def tick(self, now_s: float) -> None:
        """Let replicas that nobody asked for a while drift back to what their pool does."""
        if now_s - self._relaxed_s < RELAX_EVERY_S:
            return
        share = 1.0 - (1.0 - RELAX_SHARE) ** min(60.0, now_s - self._relaxed_s)
        self._relaxed_s = now_s
        quiet = now_s - self._last_s > QUIET_S
        changed = False
        for learned in (self._ttft, self._step):
            novice = learned.seen < NOVICE
            if not (quiet.any() or novice.any()):
                continue
            usual = self._usual(learned)
            towards = np.array([usual[pool] for pool in self._pools]).reshape(learned.weights.shape)
            learned.relax(quiet & ~novice, towards, share)
            learned.relax(novice, towards, NOVICE_SHARE)
            changed = True
        if changed:
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
        self._observe(row, expected, by_tier, ttft_ms)
        self._last_s[row] = now_s

    def late(self, replica_id: str, expected: Expected, ttft_ms: float) -> None:
        """A first token came so late that the next exchanges should know, though nobody can say yet what was cached.

        What `first_token` has to say of the same exchange is still to come.
        """
        row = self._ids.get(replica_id)
        if row is not None and ttft_ms - expected.ttft_ms > max(LATE_MS, LATE_SHARE * expected.ttft_ms):
            self._observe(row, expected, expected.by_tier, ttft_ms, guessed=True)

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
        self._ttft.observe(row, terms, ms, whole=False)
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

    def scores(self) -> tuple[Score, ...]:
        """How well every replica is predicted; empty before the first decision."""
        ttft, step = self._ttft, self._step
        return tuple(
            Score(
                self._pools[row],
                replica,
                float(ttft.error[row]),
                int(ttft.seen[row]),
                float(step.error[row]),
                int(step.seen[row]),
            )
            for replica, row in self._ids.items()
        )

    def multipliers(self, replica_id: str) -> Mapping[str, float]:
        """Learned factor on the prior of each term of one replica. Raises KeyError for an unknown one."""
        row = self._ids[replica_id]
        names = ("front", "prefill_short", "prefill_long", "host", "fs", "remote")
        steps = ("step", "step_stream", "step_token")
        learned = (*self._ttft.weights[row], *self._step.weights[row])
        return {name: float(value) for name, value in zip((*names, *steps), learned, strict=True)}

    # --- inside ---

    def _observe(
        self, row: int, expected: Expected, by_tier: tuple[int, ...], ttft_ms: float, *, guessed: bool = False
    ) -> None:
        terms = self._ttft_terms(row, expected, by_tier)
        waits = min(expected.wait_ms, 0.9 * ttft_ms)
        queued = self._prior[Col.PER_TOKEN, row] * expected.queue_tokens
        doubt = 2.0 * (queued + waits) / max(1e-6, float(terms.sum()) + waits)
        if guessed:
            doubt += 1.0
        self._ttft.observe(row, terms, ttft_ms - waits, doubt=doubt, whole=not guessed)
        self._publish(row)

    def _ttft_terms(self, row: int, expected: Expected, by_tier: tuple[int, ...]) -> Floats:
        prompt, cached, here = float(expected.prompt_tokens), float(sum(by_tier)), slice(row, row + 1)
        terms = np.zeros(len(TTFT_SPREAD))
        terms[: LONG + 1] = self._prior_curves.at(prompt, here)[:, 0]
        if cached < prompt:
            terms[SHORT : LONG + 1] -= self._prior_curves.at(cached, here)[SHORT:, 0]
            steps = math.ceil((prompt - cached) / self._prior[Col.CHUNK, row])
            terms[SHORT] += self._prior[Col.PREFILL_FIXED, row] + steps * self._prior[Col.CHUNK_STEP, row]
        else:
            terms[SHORT : LONG + 1] = 0.0
        terms[SHORT] += expected.queue_tokens * self._prior[Col.PER_TOKEN, row]
        for place, tokens in enumerate(by_tier[1:]):
            if tokens > 0:
                terms[HOST + place] = self._restore_ms(row, place, tokens)
        return terms

    def _restore_ms(self, row: int, place: int, tokens: float) -> float:
        prior = self._prior[:, row]
        moving = prior[Col.RESTORE_FIXED + place] + tokens * prior[Col.RESTORE_TOKEN + place]
        return float(max(prior[Col.RESTORE_LEAST + place], moving))

    def _publish(self, row: int | slice) -> None:
        """Prior times multiplier for one row or all."""
        ttft, prior = self._ttft.weights[row], self._prior_curves
        learned = np.concatenate((ttft, self._step.weights[row]), axis=-1)
        self.columns[:, row] = self._prior[:, row]
        self.columns[_FIGURES, row] *= learned[..., _SOURCES].T
        for out, drawn in ((self.curves.start, prior.start), (self.curves.slope, prior.slope)):
            parts = drawn[:, :, row] * ttft[..., : LONG + 1].T
            out[:, PREFILL_CURVE, row] = parts[:, SHORT] + parts[:, LONG]
            out[:, FRONT_CURVE, row] = parts[:, FRONT]

    def _start(self, learned: Multipliers, snapshot: FleetSnapshot) -> Floats:
        usual = self._usual(learned)
        fresh = np.ones(learned.weights.shape[1])
        rows = [usual.get(replica.pool, fresh) for replica in snapshot.replicas]
        return np.array(rows).reshape(len(rows), fresh.size)

    def _usual(self, learned: Multipliers) -> Mapping[str, Floats]:
        """Normal for each pool: the median habit of those that have worked, so that a sick one counts little."""
        rows: dict[str, list[int]] = {}
        for row, pool in enumerate(self._pools):
            rows.setdefault(pool, []).append(row)
        out = {}
        for pool, members in rows.items():
            tried = [row for row in members if learned.seen[row] >= NOVICE]
            out[pool] = _median(learned.habit[tried or members])
        return out


def _column(facts: PoolFacts) -> Floats:
    """The figures that learning starts from."""
    price = facts.gpus * facts.price_per_gpu_hour / 3600.0
    return column(facts.profile, price_per_s=price, obeys=facts.obeys_load_tiers)


def _median(rows: Floats) -> Floats:
    """The median of each column. `np.median` says the same, but loads all of `numpy.ma` (2 MB) to look for NaN."""
    ordered = np.sort(rows, axis=0)
    middle: Floats = (ordered[(len(rows) - 1) // 2] + ordered[len(rows) // 2]) / 2.0
    return middle


def _capped(by_tier: tuple[int, ...], cached: int) -> tuple[int, ...]:
    """What the tiers gave when `cached` tokens were reused in all: the fastest first, any surplus from the GPU."""
    out, left = [], cached
    for tokens in by_tier:
        took = min(tokens, left)
        out.append(took)
        left -= took
    out[0] += left
    return tuple(out)
