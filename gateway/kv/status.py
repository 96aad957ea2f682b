"""What is known of the cache at one moment: for metrics, and in the form that the admin API shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tiering.events.feed import SourceStatus
    from tiering.truth.accuracy import Series


@dataclass(frozen=True, slots=True)
class PoolStatus:
    """How prompts are looked up in one pool, and how well that goes."""

    name: str
    lookup: Literal["exact", "text"]
    hash_match_ratio: float | None  # share of the engine's hashes that ours equal; None: not known
    accuracy: float | None  # share of correct predictions among the last ones; None before the first
    load_only: bool  # predictions failed too often: routed by load


@dataclass(frozen=True, slots=True)
class KvStatus:
    """Everything. Without an index (nothing ever asked for one) its figures are 0 and there are no sources."""

    pools: tuple[PoolStatus, ...]
    losses: int  # of events that could not be made good, since the start
    blocks: int = 0  # in the index
    capacity: int = 0  # blocks that it keeps at least
    nbytes: int = 0
    sources: tuple[SourceStatus, ...] = ()
    series: Mapping[tuple[str, str, str], Series] | None = None  # by pool, tenant and dialect
    changes: Mapping[tuple[str, str], int] | None = None  # of the look-up, by pool and what it changed to


def shown(status: KvStatus, now_s: float) -> dict[str, Any]:
    """For the admin API. `now_s` is monotonic."""
    return {
        "blocks": status.blocks,
        "capacity": status.capacity,
        "bytes": status.nbytes,
        "losses": status.losses,
        "sources": [_source(source, now_s) for source in status.sources],
        "series": [_series(key, totals) for key, totals in (status.series or {}).items()],
        "changes": [{"pool": pool, "to": to, "count": count} for (pool, to), count in (status.changes or {}).items()],
        "pools": [asdict(pool) for pool in status.pools],
    }


def _source(status: SourceStatus, now_s: float) -> Mapping[str, Any]:
    return {
        "replica": status.source.replica,
        "rank": status.source.rank,
        "endpoint": status.source.endpoint,
        "phase": status.phase.value,
        "heard_s_ago": _ago(status.heard_at_s, now_s),
        "lost_s_ago": _ago(status.lost_at_s, now_s),
        **asdict(status.counts),
    }


def _ago(at_s: float | None, now_s: float) -> float | None:
    return round(now_s - at_s, 3) if at_s is not None else None


def _series(key: tuple[str, str, str], totals: Series) -> Mapping[str, Any]:
    pool, tenant, dialect = key
    return {
        "pool": pool,
        "tenant": tenant,
        "dialect": dialect,
        "exchanges": totals.exchanges,
        "correct": totals.correct,
        "predicted_tokens": totals.predicted_tokens,
        "reported_tokens": totals.reported_tokens,
        "wrong_tokens": totals.wrong_tokens,
        "causes": {cause.value: count for cause, count in totals.causes.items()},
    }
