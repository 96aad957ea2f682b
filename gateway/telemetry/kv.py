"""Prometheus metrics of cache knowledge, read when somebody scrapes: nothing is counted here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.kv.status import KvStatus

_SERIES = ("pool", "tenant", "dialect")
_REPLICA = ("pool", "replica")


class KvMetrics(Collector):
    """How well cache predictions hold, the index, and the engines' event streams.

    Labels come from the configuration, and the truth loop caps their combinations. DP ranks are added up per replica:
    the admin API tells them apart.
    """

    def __init__(self, known: Callable[[], KvStatus]) -> None:
        """`known` gives what is known at the moment of a scrape."""
        self._known = known

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus-client."""
        status = self._known()
        yield from _index(status)
        yield from _pools(status)
        yield from _predictions(status)
        yield from _events(status)


def _index(status: KvStatus) -> Iterator[Metric]:
    for name, text, value in (
        ("headrace_kv_index_blocks", "Blocks in the prefix index that some replica holds.", status.blocks),
        ("headrace_kv_index_capacity_blocks", "Blocks that the index keeps at least.", status.capacity),
        ("headrace_kv_index_bytes", "Memory of the index; 0 before anything asks for one.", status.nbytes),
    ):
        yield GaugeMetricFamily(name, text, value=value)


def _pools(status: KvStatus) -> Iterator[Metric]:
    accuracy = GaugeMetricFamily(
        "headrace_kv_accuracy_ratio", "Correct cache predictions among a pool's last 50.", labels=("pool",)
    )
    matching = GaugeMetricFamily(
        "headrace_kv_hash_match_ratio", "Block hashes of the engine that ours equal.", labels=("pool",)
    )
    exact = GaugeMetricFamily("headrace_kv_exact", "1: looked up by the engine's hashes, 0: by text.", labels=("pool",))
    load_only = GaugeMetricFamily(
        "headrace_kv_load_only", "1: predictions failed too often, the pool is routed by load.", labels=("pool",)
    )
    changes = CounterMetricFamily(
        "headrace_kv_lookup_changes",
        "Changes of the look-up: load_only (demoted) and back to cache, text and back to exact.",
        labels=("pool", "to"),
    )
    for pool in status.pools:
        labels = (pool.name,)
        if pool.accuracy is not None:
            accuracy.add_metric(labels, pool.accuracy)
        if pool.hash_match_ratio is not None:
            matching.add_metric(labels, pool.hash_match_ratio)
        exact.add_metric(labels, pool.lookup == "exact")
        load_only.add_metric(labels, pool.load_only)
    for change, count in (status.changes or {}).items():
        changes.add_metric(change, count)
    yield from (accuracy, matching, exact, load_only, changes)


def _predictions(status: KvStatus) -> Iterator[Metric]:
    predictions = CounterMetricFamily(
        "headrace_kv_predictions", "Cache predictions that engines answered.", labels=(*_SERIES, "outcome")
    )
    tokens = CounterMetricFamily(
        "headrace_kv_prediction_tokens",
        "Cached tokens: predicted, reported by the engine, and by how many the two differed.",
        labels=(*_SERIES, "kind"),
    )
    causes: Counter[tuple[str, str]] = Counter()
    for labels, totals in (status.series or {}).items():
        predictions.add_metric((*labels, "correct"), totals.correct)
        predictions.add_metric((*labels, "wrong"), totals.exchanges - totals.correct)
        tokens.add_metric((*labels, "predicted"), totals.predicted_tokens)
        tokens.add_metric((*labels, "reported"), totals.reported_tokens)
        tokens.add_metric((*labels, "difference"), totals.wrong_tokens)
        for cause, count in totals.causes.items():
            causes[labels[0], cause.value] += count
    misses = CounterMetricFamily("headrace_kv_misses", "Wrong predictions by cause.", labels=("pool", "cause"))
    for key, count in causes.items():
        misses.add_metric(key, count)
    yield from (predictions, tokens, misses)


def _events(status: KvStatus) -> Iterator[Metric]:
    feeds: Counter[tuple[str, str, str]] = Counter()
    batches: Counter[tuple[str, str]] = Counter()
    incidents: Counter[tuple[str, str, str]] = Counter()
    for source in status.sources:
        replica, counts = source.source.replica, source.counts
        labels = (replica.rpartition("/")[0], replica)
        feeds[(*labels, source.phase.value)] += 1
        batches[labels] += counts.batches
        kinds: Mapping[str, int] = {
            "gap": counts.gaps,
            "replay": counts.replays,
            "restart": counts.restarts,
            "loss": counts.forgotten,
            "bad_batch": counts.bad,
            "unknown_medium": counts.unknown_media,
        }
        for kind, count in kinds.items():
            incidents[(*labels, kind)] += count
    state = GaugeMetricFamily(
        "headrace_kv_event_feeds", "Event streams that are followed, by phase.", labels=(*_REPLICA, "phase")
    )
    heard = CounterMetricFamily("headrace_kv_event_batches", "Batches of events heard.", labels=_REPLICA)
    special = CounterMetricFamily(
        "headrace_kv_event_incidents", "What happened to event streams.", labels=(*_REPLICA, "kind")
    )
    for feed, count in feeds.items():
        state.add_metric(feed, count)
    for replica_labels, count in batches.items():
        heard.add_metric(replica_labels, count)
    for incident, count in incidents.items():
        special.add_metric(incident, count)
    yield from (state, heard, special)
