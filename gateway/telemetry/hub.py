"""The pipeline's one way to tell: a record is started, filled, and finished exactly once."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping

import structlog
from prometheus_client.registry import Collector

from backends.contracts import Candidate, Clock, FleetSnapshot
from gateway.config.model import Telemetry as TelemetryConfig
from gateway.telemetry.access import AccessLog
from gateway.telemetry.export import ExportCounts, Kept, SpanExporter
from gateway.telemetry.ids import IdSource, TraceContext, parse_context
from gateway.telemetry.lines import LineWriter
from gateway.telemetry.metrics import (
    ExchangeMetrics,
    FleetMetrics,
    Gathered,
    IncidentMetrics,
    ProcessMetrics,
    Sample,
    build_registry,
)
from gateway.telemetry.record import ExchangeRecord
from gateway.telemetry.sampling import Sampler

log = structlog.get_logger("headrace.telemetry")

_RECENT_LIMIT = 256  # finished exchanges the admin API can show
_BATCH = 16  # finished exchanges that are told of together
_TELL_S = 0.1  # how long one may wait for others


class Telemetry:
    """Records of exchanges in flight and what becomes of finished ones. Belongs to the event loop.

    `ids` also serves whoever needs random hex; `live` and `recent` serve the admin API. Finished exchanges are told of
    a few at a time: one right after the other costs half of what each costs amid other work.
    """

    __slots__ = ("_clock", "_exporter", "_exports", "_finished", "_incidents", "_lines", "_log", "_metrics", "_recent",
                 "_registry", "_resource", "_sampler", "generation", "ids", "live")  # fmt: skip

    def __init__(
        self,
        config: TelemetryConfig,
        *,
        clock: Clock,
        ids: IdSource,
        snapshot: Callable[[], FleetSnapshot],
        lines: LineWriter,
        version: str,
    ) -> None:
        """`snapshot` gives the fleet at the moment of a scrape; `lines` takes the access log."""
        self._clock = clock
        self.ids = ids
        self._lines = lines
        self._resource: Mapping[str, str] = {"service.name": "headrace", "service.version": version}
        self._sampler = Sampler(config.sample_ratio, config.slow_s)
        self._log = AccessLog(lines.write) if config.access_log else None
        self._exports = ExportCounts()
        self._exporter = self._new_exporter(config)
        self._metrics = ExchangeMetrics()
        self._incidents = IncidentMetrics()
        self.generation = 1  # of the configuration
        self.live: set[ExchangeRecord] = set()
        self._finished: list[ExchangeRecord] = []  # not told of yet
        self._recent: deque[ExchangeRecord] = deque(maxlen=_RECENT_LIMIT)
        process = ProcessMetrics(version, self._samples())
        self._registry = build_registry((self._metrics, FleetMetrics(snapshot), self._incidents, process))

    def open(self) -> None:
        """Start sending spans, when a collector is configured."""
        if self._exporter is not None:
            self._exporter.start()

    def start(self, request_id: str, traceparent: str | None = None, tracestate: str | None = None) -> ExchangeRecord:
        """`begin`, in the trace of a caller's headers."""
        return self.begin(request_id, parse_context(traceparent, tracestate))

    def begin(self, request_id: str, parent: TraceContext | None) -> ExchangeRecord:
        """The record of a new exchange. Whoever begins one finishes it, whatever happens."""
        record = self._sampler.start(self.ids, request_id, parent, self._clock.monotonic(), self._clock.time())
        self.live.add(record)
        return record

    def finish(self, record: ExchangeRecord) -> None:
        """Close the record; it is told of soon. A second call does nothing."""
        if record not in self.live:
            return
        self.live.discard(record)
        if not record.ended:
            record.ended = self._clock.monotonic()
        self._finished.append(record)
        if len(self._finished) >= _BATCH:
            self.tell()

    def tell(self) -> None:
        """Tell of what has finished: metrics, one log line each, and spans of those that are kept."""
        finished, self._finished = self._finished, []
        for record in finished:
            try:
                self._tell_of(record)
            except Exception:  # none may take the others with it, nor whoever finished last
                log.exception("exchange not told of", request_id=record.request_id)

    def _tell_of(self, record: ExchangeRecord) -> None:
        self._metrics.observe(record)
        if self._log is not None:
            self._log.exchange(record)
        self._recent.append(record)
        if self._exporter is not None and self._sampler.keeps(record):
            self._exporter.offer(Kept(record, _evidence(record)))

    async def run(self) -> None:
        """Let nothing wait for long, until cancelled."""
        while True:
            await asyncio.sleep(_TELL_S)
            self.tell()

    @property
    def recent(self) -> deque[ExchangeRecord]:
        """The exchanges that finished last, newest at the end."""
        self.tell()
        return self._recent

    def contradicted(self, pool: str, term: str) -> None:
        """Count a probe that contradicts what `pool` declares of a contract's `term`."""
        self._incidents.count(pool, term)

    def export(self, *collectors: Collector) -> None:
        """Let `/metrics` have what other parts know, too."""
        for collector in collectors:
            self._registry.register(collector)

    def gather(self) -> Gathered:
        """What `/metrics` shows now."""
        self.tell()
        return Gathered(self._registry)

    def apply(self, config: TelemetryConfig) -> None:
        """Follow a new configuration. A collector that is no longer named gets what was queued for it."""
        self.tell()
        self.generation += 1
        self._sampler = Sampler(config.sample_ratio, config.slow_s)
        self._log = AccessLog(self._lines.write) if config.access_log else None
        old = self._exporter
        if (old.endpoint if old else None) == config.otlp_endpoint:
            return
        if old is not None:
            old.stop()
        self._exporter = self._new_exporter(config)
        self.open()

    def close(self, timeout_s: float = 2.0) -> None:
        """Send what is queued, for `timeout_s` at most. Blocks: call it off the event loop, when nothing runs there."""
        self.tell()
        if self._exporter is not None:
            self._exporter.close(timeout_s)

    def _new_exporter(self, config: TelemetryConfig) -> SpanExporter | None:
        if not config.otlp_endpoint:
            return None
        return SpanExporter(config.otlp_endpoint, self._resource, self._exports)

    def _samples(self) -> tuple[Sample, ...]:
        return (
            Sample("headrace_exchanges_in_flight", "Exchanges begun and not finished.", lambda: len(self.live)),
            Sample(
                "headrace_config_generation", "Configurations applied, the first included.", lambda: self.generation
            ),
            Sample("headrace_traces_exported", "Taken by a collector.", lambda: self._exports.exported, counts=True),
            Sample("headrace_traces_dropped", "Kept, but taken by none.", lambda: self._exports.dropped, counts=True),
            Sample("headrace_log_lines_dropped", "Log lines lost.", lambda: self._lines.dropped, counts=True),
        )


def _evidence(record: ExchangeRecord) -> tuple[Candidate, ...]:
    """The candidates of the decision. Routing defers building them until somebody wants to know."""
    decision = record.decision
    if decision is None:
        return ()
    return decision.explain() if decision.explain else decision.candidates
