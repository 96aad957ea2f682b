from __future__ import annotations

from collections import Counter

from gateway.kv.status import KvStatus, PoolStatus
from gateway.telemetry.kv import KvMetrics
from tests.unit.gateway.telemetry.test_metrics import Samples, scrape
from tiering.events.discovery import Source
from tiering.events.feed import SourceStatus
from tiering.events.tracker import Counts, Phase
from tiering.truth.accuracy import Series
from tiering.truth.causes import Cause

POOLS = (
    PoolStatus("a", "exact", 0.99, 0.96, load_only=False),
    PoolStatus("b", "text", None, None, load_only=True),
)


def of(status: KvStatus) -> Samples:
    """KV samples by (name, label values in the order of their names)."""
    return {key: value for key, value in scrape(KvMetrics(lambda: status)).items() if key[0].startswith("headrace")}


def test_before_anything_asks_for_an_index() -> None:
    samples = of(KvStatus(POOLS[1:], losses=0))
    assert samples == {
        ("headrace_kv_index_blocks",): 0,
        ("headrace_kv_index_capacity_blocks",): 0,
        ("headrace_kv_index_bytes",): 0,
        ("headrace_kv_exact", "b"): 0,
        ("headrace_kv_load_only", "b"): 1,
    }


def test_pools_and_the_index() -> None:
    changes = {("b", "load_only"): 2, ("b", "cache"): 1}
    samples = of(KvStatus(POOLS, losses=0, blocks=12, capacity=1000, nbytes=28_000, changes=changes))
    assert samples["headrace_kv_index_blocks",] == 12
    assert samples["headrace_kv_index_capacity_blocks",] == 1000
    assert samples["headrace_kv_index_bytes",] == 28_000
    assert samples["headrace_kv_accuracy_ratio", "a"] == 0.96
    assert samples["headrace_kv_hash_match_ratio", "a"] == 0.99
    assert ("headrace_kv_accuracy_ratio", "b") not in samples  # not known is not 0
    assert (samples["headrace_kv_exact", "a"], samples["headrace_kv_exact", "b"]) == (1, 0)
    assert (samples["headrace_kv_load_only", "a"], samples["headrace_kv_load_only", "b"]) == (0, 1)
    assert samples["headrace_kv_lookup_changes_total", "b", "load_only"] == 2
    assert samples["headrace_kv_lookup_changes_total", "b", "cache"] == 1


def test_predictions_per_pool_tenant_and_dialect_and_causes_per_pool() -> None:
    series = {
        ("a", "t", "chat"): Series(10, 8, 1600, 1500, 120, Counter({Cause.EVICTION: 2})),
        ("a", "u", "messages"): Series(3, 2, 100, 90, 10, Counter({Cause.EVICTION: 1})),
    }
    samples = of(KvStatus((), losses=0, series=series))
    # Labels are in the order of their names: dialect, outcome or kind, pool, tenant.
    assert samples["headrace_kv_predictions_total", "chat", "correct", "a", "t"] == 8
    assert samples["headrace_kv_predictions_total", "chat", "wrong", "a", "t"] == 2
    assert samples["headrace_kv_predictions_total", "messages", "wrong", "a", "u"] == 1
    assert samples["headrace_kv_prediction_tokens_total", "chat", "predicted", "a", "t"] == 1600
    assert samples["headrace_kv_prediction_tokens_total", "chat", "reported", "a", "t"] == 1500
    assert samples["headrace_kv_prediction_tokens_total", "chat", "difference", "a", "t"] == 120
    assert samples["headrace_kv_misses_total", "eviction", "a"] == 3


def test_ranks_of_a_replica_are_added_up() -> None:
    def rank(number: int, phase: Phase, counts: Counts) -> SourceStatus:
        return SourceStatus(Source("a/0", number, "tcp://h:1"), phase, counts, None, None)

    sources = (
        rank(0, Phase.LIVE, Counts(batches=5, gaps=1, replays=2, restarts=1, forgotten=1, bad=1, unknown_media=4)),
        rank(1, Phase.LIVE, Counts(batches=7, replays=1)),
        rank(2, Phase.GAP, Counts()),
    )
    samples = of(KvStatus((), losses=1, sources=sources))
    assert samples["headrace_kv_event_feeds", "live", "a", "a/0"] == 2
    assert samples["headrace_kv_event_feeds", "gap", "a", "a/0"] == 1
    assert samples["headrace_kv_event_batches_total", "a", "a/0"] == 12
    kinds = {"gap": 1, "replay": 3, "restart": 1, "loss": 1, "bad_batch": 1, "unknown_medium": 4}
    for kind, count in kinds.items():
        assert samples["headrace_kv_event_incidents_total", kind, "a", "a/0"] == count
