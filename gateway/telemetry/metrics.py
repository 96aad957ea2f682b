"""Prometheus metrics of one gateway process.

Exchanges are counted in plain integers and turned into metric families only when somebody scrapes: a
prometheus-client child takes a lock per sample (about 1 us each, a dozen per exchange), and here everything
is counted by the event loop alone.
"""

from __future__ import annotations

import platform
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from backends.contracts import FleetSnapshot
from gateway.telemetry.record import ExchangeRecord

OTHER = "other"
_SERIES_LIMIT = 1024  # label sets of exchanges and of attempts; what comes later is counted as "other"
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0)
_TOKEN_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1.0)
_DECISION_SECONDS = (0.00001, 0.000025, 0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.005, 0.025, 0.1)
_TOKEN_KINDS = ("prompt", "cached", "completion", "reasoning")
_EXCHANGE_LABELS = ("model", "pool", "dialect")


class Histogram:
    """Counts per bucket and their sum, for one label set. `bounds` are upper bounds in seconds, ascending."""

    __slots__ = ("bounds", "counts", "sum")

    def __init__(self, bounds: Sequence[float]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, seconds: float) -> None:
        """Count one value."""
        self.counts[bisect_left(self.bounds, seconds)] += 1
        self.sum += seconds

    def cumulative(self) -> list[tuple[str, float]]:
        """Buckets as the exposition format wants them: (upper bound, values up to it)."""
        total = 0
        buckets: list[tuple[str, float]] = []
        for bound, count in zip((*map(str, self.bounds), "+Inf"), self.counts, strict=True):
            total += count
            buckets.append((bound, total))
        return buckets


class _ExchangeSeries:
    """Everything counted under one (model, pool, dialect)."""

    __slots__ = ("duration", "per_token", "statuses", "tokens", "ttft")

    def __init__(self) -> None:
        self.statuses = [0] * 6  # index: hundreds of the status; 0 for an answer without one
        self.tokens = [0] * len(_TOKEN_KINDS)
        self.duration = Histogram(_SECONDS)
        self.ttft = Histogram(_SECONDS)
        self.per_token = Histogram(_TOKEN_SECONDS)

    def add(self, record: ExchangeRecord) -> None:
        status = record.status
        self.statuses[status // 100 if 100 <= status < 600 else 0] += 1
        self.duration.observe(record.ended - record.started)
        first = record.first_token
        if first:
            self.ttft.observe(first - record.started)
            if record.stream and record.completion_tokens > 1:
                self.per_token.observe((record.ended - first) / (record.completion_tokens - 1))
        tokens = self.tokens
        if record.prompt_tokens:
            tokens[0] += record.prompt_tokens
            tokens[1] += record.cached_tokens
            tokens[2] += record.completion_tokens
            tokens[3] += record.reasoning_tokens


class ExchangeMetrics(Collector):
    """Counts finished exchanges. `observe` belongs to the event loop, `collect` to whoever scrapes."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, str, str], _ExchangeSeries] = {}
        self._attempts: dict[tuple[str, str], int] = {}
        self._retries: dict[str, int] = {}
        self._decision = Histogram(_DECISION_SECONDS)

    def observe(self, record: ExchangeRecord) -> None:
        """Count one finished exchange and its attempts."""
        pool = ""
        attempts = record.attempts
        if attempts:
            counts = self._attempts
            for attempt in attempts:
                pool = attempt.replica.pool
                fault = attempt.fault
                key = (pool, "ok" if fault is None else fault.value)
                if key not in counts and len(counts) >= _SERIES_LIMIT:
                    key = (OTHER, key[1])
                counts[key] = counts.get(key, 0) + 1
            if len(attempts) > 1:
                self._count_retries(record)
        if record.decided:
            self._decision.observe(record.decided - record.deciding)
        # `resolved` is a name from the configuration, so a client cannot make labels.
        labels = (record.resolved or OTHER, pool, record.dialect)
        series = self._series.get(labels)
        if series is None:
            series = self._new_series(labels)
        series.add(record)

    def _count_retries(self, record: ExchangeRecord) -> None:
        for attempt in record.attempts[1:]:
            pool = attempt.replica.pool
            if pool not in self._retries and len(self._retries) >= _SERIES_LIMIT:
                pool = OTHER
            self._retries[pool] = self._retries.get(pool, 0) + 1

    def _new_series(self, labels: tuple[str, str, str]) -> _ExchangeSeries:
        if len(self._series) >= _SERIES_LIMIT:
            labels = (OTHER, OTHER, labels[2])
        return self._series.setdefault(labels, _ExchangeSeries())

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus-client."""
        series = list(self._series.items())
        exchanges = CounterMetricFamily(
            "headrace_exchanges", "Finished exchanges by class of HTTP status.", labels=(*_EXCHANGE_LABELS, "status")
        )
        tokens = CounterMetricFamily(
            "headrace_tokens", "Tokens as the engines counted them.", labels=(*_EXCHANGE_LABELS, "kind")
        )
        for labels, one in series:
            for hundreds, count in enumerate(one.statuses):
                if count:
                    exchanges.add_metric((*labels, f"{hundreds}xx" if hundreds else "none"), count)
            for kind, count in zip(_TOKEN_KINDS, one.tokens, strict=True):
                tokens.add_metric((*labels, kind), count)
        yield exchanges
        yield tokens
        yield _family(
            "headrace_exchange_duration_seconds",
            "From the request's head to the end of the answer.",
            ((labels, one.duration) for labels, one in series),
        )
        yield _family(
            "headrace_time_to_first_token_seconds",
            "From the request's head to the first token of the answer.",
            ((labels, one.ttft) for labels, one in series),
        )
        yield _family(
            "headrace_time_per_output_token_seconds",
            "Mean time between tokens after the first, of streamed answers.",
            ((labels, one.per_token) for labels, one in series),
        )
        yield from self._collect_attempts()

    def _collect_attempts(self) -> Iterator[Metric]:
        attempts = CounterMetricFamily(
            "headrace_attempts", "Attempts by outcome: ok, or the fault.", labels=("pool", "outcome")
        )
        for attempt_labels, count in list(self._attempts.items()):
            attempts.add_metric(attempt_labels, count)
        yield attempts
        retries = CounterMetricFamily("headrace_retries", "Attempts after an exchange's first.", labels=("pool",))
        for pool, count in list(self._retries.items()):
            retries.add_metric((pool,), count)
        yield retries
        yield _family("headrace_decision_seconds", "Time to choose a replica.", [((), self._decision)], labels=())


def _family(
    name: str,
    text: str,
    rows: Iterable[tuple[Sequence[str], Histogram]],
    labels: Sequence[str] = _EXCHANGE_LABELS,
) -> HistogramMetricFamily:
    family = HistogramMetricFamily(name, text, labels=labels)
    for values, histogram in rows:
        family.add_metric(values, histogram.cumulative(), histogram.sum)
    return family


class FleetMetrics(Collector):
    """Gauges per replica, read from the fleet's live counters at the moment of the scrape."""

    def __init__(self, snapshot: Callable[[], FleetSnapshot]) -> None:
        self._snapshot = snapshot

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus-client."""
        snapshot = self._snapshot()
        table = snapshot.table
        columns = (
            ("headrace_replica_exchanges", "Exchanges in flight, by this gateway.", table.exchanges),
            (
                "headrace_replica_prefill_tokens",
                "Uncached prompt tokens sent, first token not seen.",
                table.prefill_tokens,
            ),
            ("headrace_replica_context_tokens", "Prompt tokens of all exchanges in flight.", table.context_tokens),
        )
        for name, text, column in columns:
            gauge = GaugeMetricFamily(name, text, labels=("pool", "replica"))
            for replica in snapshot.replicas:
                gauge.add_metric((replica.pool, replica.id), column[replica.row])
            yield gauge
        states = GaugeMetricFamily(
            "headrace_replica_state", "1 for the state it is in.", labels=("pool", "replica", "state")
        )
        for replica in snapshot.replicas:
            states.add_metric((replica.pool, replica.id, replica.state.value), 1)
        yield states
        yield GaugeMetricFamily("headrace_leases", "Leases held, over all replicas.", value=sum(table.exchanges))


class IncidentMetrics(Collector):
    """Counts probes that contradicted what a pool declares."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], int] = {}

    def count(self, pool: str, term: str) -> None:
        """Count one incident; `term` is one of `backends.contract.TERMS`."""
        key = (pool, term)
        if key not in self._counts and len(self._counts) >= _SERIES_LIMIT:
            key = (OTHER, term)
        self._counts[key] = self._counts.get(key, 0) + 1

    def collect(self) -> Iterator[Metric]:
        """The family, for prometheus-client."""
        incidents = CounterMetricFamily(
            "headrace_contract_incidents", "Probes that contradicted a declaration.", labels=("pool", "term")
        )
        for labels, count in list(self._counts.items()):
            incidents.add_metric(labels, count)
        yield incidents


class Sample:
    """One value read at the moment of a scrape."""

    __slots__ = ("counts", "name", "read", "text")

    def __init__(self, name: str, text: str, read: Callable[[], float], *, counts: bool = False) -> None:
        """`counts`: it only ever grows, so it is a counter; else a gauge."""
        self.name = name
        self.text = text
        self.read = read
        self.counts = counts


class ProcessMetrics(Collector):
    """Build information and the values that other parts offer."""

    def __init__(self, version: str, samples: Sequence[Sample]) -> None:
        self._version = version
        self._samples = samples

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus-client."""
        build = GaugeMetricFamily("headrace_build_info", "Always 1.", labels=("version", "python"))
        build.add_metric((self._version, platform.python_version()), 1)
        yield build
        for sample in self._samples:
            family = CounterMetricFamily if sample.counts else GaugeMetricFamily
            yield family(sample.name, sample.text, value=sample.read())


def build_registry(collectors: Iterable[Collector]) -> CollectorRegistry:
    """A registry of its own with these collectors and the process's CPU, memory and descriptors."""
    registry = CollectorRegistry(auto_describe=False)
    for collector in collectors:
        registry.register(collector)
    ProcessCollector(registry=registry)
    return registry


class Gathered(Collector):
    """All values of one moment. They may be written out in any thread, which is most of the work of a scrape."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._families = tuple(registry.collect())

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus-client."""
        return iter(self._families)


def render(values: Gathered, accept: str) -> tuple[bytes, str]:
    """The body and content type of a scrape, in the format that the `Accept` header prefers."""
    encode, content_type = choose_encoder(accept)
    return encode(values), content_type
