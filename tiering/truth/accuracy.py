"""How well predictions hold, per pool x tenant x dialect, and which pools may no longer be routed by them."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

from backends.contracts import DialectName, Tier
from tiering.truth.causes import Cause, Evidence, cause_of

OTHER = "other"
_SERIES = 1024  # pool x tenant x dialect combinations; what comes later is counted as "other"
_WINDOW = 50  # exchanges that decide about a pool
_ENOUGH = 20
_DEMOTE_BELOW = 0.7
_RESTORE_FROM = 0.95


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the index promised for the chosen replica."""

    pool: str
    replica: str
    tenant: str
    dialect: DialectName
    by_tier: Mapping[Tier, int]  # cached tokens expected from each tier
    tokens: int | None = None  # length of the prompt as computed here; None when it was only estimated
    block: int = 0  # tokens of one block of the engine, as far as known; 0: unknown
    unseen: int = 0  # by text: tokens of the text block in which the match ended, of which nothing is promised

    @property
    def exact(self) -> bool:
        """By the engine's own hashes; else by text."""
        return self.tokens is not None

    @property
    def cached(self) -> int:
        """Cached tokens expected from all tiers."""
        return sum(self.by_tier.values())


@dataclass(frozen=True, slots=True)
class Reported:
    """What the engine said in its usage. `by_tier` where it tells tiers apart (SGLang)."""

    cached: int
    tokens: int
    by_tier: Mapping[Tier, int] | None = None


@dataclass(frozen=True, slots=True)
class Change:
    """How a pool's cache is looked up has changed. To be logged loudly.

    `load_only` and `cache`: predictions failed too often, and hold again; `share` of the last ones was correct.
    `text` and `exact`: our hashes stopped, and began again, to equal the engine's; `share` is the hash match ratio.
    """

    pool: str
    to: Literal["load_only", "cache", "text", "exact"]
    share: float
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """One exchange judged."""

    correct: bool
    cause: Cause | None = None
    change: Change | None = None


@dataclass(slots=True)
class Series:
    """Totals of one pool x tenant x dialect."""

    exchanges: int = 0
    correct: int = 0
    predicted_tokens: int = 0
    reported_tokens: int = 0
    wrong_tokens: int = 0  # sum of |predicted - reported|
    causes: Counter[Cause] = field(default_factory=Counter)


@dataclass(slots=True)
class _Pool:
    recent: deque[Cause | None] = field(default_factory=lambda: deque(maxlen=_WINDOW))  # None: correct
    demoted: bool = False


class TruthLoop:
    """Judges every exchange and keeps score. Pure: what it decides is in its return values."""

    __slots__ = ("_pools", "_series")

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], Series] = {}
        self._pools: dict[str, _Pool] = {}

    def observe(self, prediction: Prediction, reported: Reported, evidence: Callable[[], Evidence]) -> Verdict:
        """Take in one finished exchange. `evidence` is asked only when the prediction was wrong."""
        correct = is_correct(prediction, reported)
        cause = None if correct else cause_of(evidence())
        self._count(prediction, reported, cause)
        return Verdict(correct, cause, self._judge(prediction.pool, cause))

    def demoted(self, pool: str) -> bool:
        """Whether the pool is to be routed by load only."""
        state = self._pools.get(pool)
        return state is not None and state.demoted

    def accuracy(self, pool: str) -> float | None:
        """Share of correct predictions among the pool's last exchanges; None before the first."""
        state = self._pools.get(pool)
        return _share(state.recent) if state and state.recent else None

    def series(self) -> Mapping[tuple[str, str, str], Series]:
        """Totals by (pool, tenant, dialect), for metrics and the admin API. They only grow, until the pool has left."""
        return self._series

    def forget(self, pool: str) -> None:
        """The pool is gone."""
        self._pools.pop(pool, None)
        for key in [key for key in self._series if key[0] == pool]:
            del self._series[key]

    def _count(self, prediction: Prediction, reported: Reported, cause: Cause | None) -> None:
        key: tuple[str, str, str] = (prediction.pool, prediction.tenant, prediction.dialect)
        series = self._series.get(key)
        if series is None:
            if len(self._series) >= _SERIES:
                key = (OTHER, OTHER, prediction.dialect)
            series = self._series.setdefault(key, Series())
        series.exchanges += 1
        series.predicted_tokens += prediction.cached
        series.reported_tokens += reported.cached
        series.wrong_tokens += abs(prediction.cached - reported.cached)
        if cause is None:
            series.correct += 1
        else:
            series.causes[cause] += 1

    def _judge(self, pool: str, cause: Cause | None) -> Change | None:
        state = self._pools.setdefault(pool, _Pool())
        state.recent.append(cause)
        share = _share(state.recent)
        if not state.demoted and len(state.recent) >= _ENOUGH and share < _DEMOTE_BELOW:
            state.demoted = True
            causes = Counter(item for item in state.recent if item is not None)
            return Change(pool, "load_only", share, causes.most_common(1)[0][0])
        # Predictions are made and judged all the same while a pool is demoted, so that it can come back.
        if state.demoted and len(state.recent) == _WINDOW and share >= _RESTORE_FROM:
            state.demoted = False
            return Change(pool, "cache", share, None)
        return None


def is_correct(prediction: Prediction, reported: Reported) -> bool:
    """Whether a prediction held: within a block of the engine, or by text within a fifth of the prompt.

    A match by text ends at a whole block of text, and knows nothing of what the chat template puts before every
    prompt. So the engine may also have found what is `unseen` beyond it: that much was never denied.
    """
    slack = max(prediction.block, 0 if prediction.exact else reported.tokens // 5)
    return -slack <= reported.cached - prediction.cached <= slack + prediction.unseen


def _share(recent: deque[Cause | None]) -> float:
    return sum(cause is None for cause in recent) / len(recent)
