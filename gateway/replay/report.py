"""What a replay found, as numbers: one result per policy, comparable line by line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from gateway.replay.simulation import Outcome
from gateway.replay.world import World

Floats = NDArray[np.float64]

CURVE_POINTS = 101
TIMELINE_SLOTS = 60


@dataclass(frozen=True, slots=True)
class Spread:
    """Quantiles of a time, in seconds; all 0 without exchanges."""

    mean: float = 0.0
    p50: float = 0.0
    p90: float = 0.0
    p95: float = 0.0
    p99: float = 0.0

    @classmethod
    def of(cls, seconds: Floats) -> Spread:
        """Of the values that are numbers."""
        known = seconds[~np.isnan(seconds)]
        if not known.size:
            return cls()
        return cls(float(known.mean()), *(float(value) for value in np.percentile(known, (50, 90, 95, 99))))


@dataclass(frozen=True, slots=True)
class Hits:
    """Share of all prompt tokens that came from each tier."""

    gpu: float = 0.0
    host: float = 0.0
    fs: float = 0.0

    @property
    def total(self) -> float:
        """Share that needed no prefill."""
        return self.gpu + self.host + self.fs

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Hits:
        """Over some exchanges."""
        prompt = sum(outcome.arrival.prompt_tokens for outcome in outcomes)
        if not prompt:
            return cls()
        cached = np.array([outcome.cached for outcome in outcomes]).sum(axis=0) / prompt
        return cls(*(float(share) for share in cached))


@dataclass(frozen=True, slots=True)
class TenantResult:
    """One tenant's part of a result."""

    exchanges: int
    ttft: Spread
    hits: Hits
    slo_misses: int


@dataclass(frozen=True, slots=True)
class Result:
    """One policy over the whole trace."""

    policy: str
    exchanges: int
    refused: int  # fitted no replica
    ttft: Spread
    e2e: Spread
    hits: Hits
    gpu_seconds: float  # GPUs of a replica x the time it had work
    moved: float  # share of exchanges that another replica served than in the baseline
    baseline: str  # what `moved` compares with: "the trace", or a policy
    slo_misses: int
    prediction_error: float  # median |predicted - real TTFT| / real; 0 for policies that predict nothing
    by_tenant: dict[str, TenantResult]
    by_replica: dict[str, int]
    ttft_curve: tuple[float, ...]  # percentiles 0..100
    ttft_timeline: tuple[float, ...]  # p95 in equal slices of the trace, NaN left out as 0


@dataclass(frozen=True, slots=True)
class Study:
    """All policies over one trace, in the order asked for."""

    trace: str
    exchanges: int
    seconds: float
    slo_ttft_s: float
    results: tuple[Result, ...]

    def as_dict(self) -> dict[str, object]:
        """Plain data for JSON. The same trace, configuration and seed give the same data."""
        return asdict(self)


def summarise(
    policy: str, outcomes: Sequence[Outcome], world: World, *, slo_ttft_s: float, baseline: str, places: Sequence[str]
) -> Result:
    """Boil one simulation down. `places` are the replica ids of the baseline, "" where unknown."""
    served = [outcome for outcome in outcomes if outcome.row >= 0]
    ids = [replica.id for replica in world.snapshot.replicas]
    ttft = np.array([outcome.ttft_s for outcome in served])
    predicted = np.array([outcome.predicted_ttft_s for outcome in served])
    known = ~np.isnan(predicted)
    error = np.abs(predicted - ttft)[known] / ttft[known]
    tenants = sorted({outcome.arrival.tenant for outcome in served})
    rows = np.bincount([outcome.row for outcome in served], minlength=len(ids))
    return Result(
        policy=policy,
        exchanges=len(served),
        refused=len(outcomes) - len(served),
        ttft=Spread.of(ttft),
        e2e=Spread.of(np.array([outcome.e2e_s for outcome in served])),
        hits=Hits.of(served),
        gpu_seconds=float(sum(busy * gpus for busy, gpus in zip(world.busy_s, world.gpus, strict=True))),
        moved=_moved(outcomes, ids, places),
        baseline=baseline,
        slo_misses=int((ttft > slo_ttft_s).sum()),
        prediction_error=float(np.median(error)) if error.size else 0.0,
        by_tenant={
            tenant: _tenant([o for o in served if o.arrival.tenant == tenant], slo_ttft_s) for tenant in tenants
        },
        by_replica={replica: int(count) for replica, count in zip(ids, rows, strict=True)},
        ttft_curve=tuple(np.percentile(ttft, np.linspace(0, 100, CURVE_POINTS)).tolist()) if ttft.size else (),
        ttft_timeline=tuple(_timeline(served)),
    )


def _tenant(outcomes: Sequence[Outcome], slo_ttft_s: float) -> TenantResult:
    ttft = np.array([outcome.ttft_s for outcome in outcomes])
    return TenantResult(len(outcomes), Spread.of(ttft), Hits.of(outcomes), int((ttft > slo_ttft_s).sum()))


def _moved(outcomes: Sequence[Outcome], ids: Sequence[str], places: Sequence[str]) -> float:
    pairs = [(ids[o.row], place) for o, place in zip(outcomes, places, strict=True) if o.row >= 0 and place]
    return sum(now != before for now, before in pairs) / len(pairs) if pairs else 0.0


def _timeline(outcomes: Sequence[Outcome]) -> Iterable[float]:
    """p95 of TTFT in equal slices of the trace."""
    if not outcomes:
        return
    last = max(outcome.arrival.at_s for outcome in outcomes) or 1.0
    slots: list[list[float]] = [[] for _ in range(TIMELINE_SLOTS)]
    for outcome in outcomes:
        slots[min(TIMELINE_SLOTS - 1, int(TIMELINE_SLOTS * outcome.arrival.at_s / last))].append(outcome.ttft_s)
    for values in slots:
        yield float(np.percentile(values, 95)) if values else 0.0
