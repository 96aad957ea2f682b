"""Cost of telling of one exchange. Prints one line: PASS or FAIL, then the figures.

An unkept exchange is everything that tracing does to it: ids, the record with its timestamps and facts, the
header for the engine, the decision not to keep it. Metrics and the log line are measured beside it.
"""

from __future__ import annotations

import sys
import time
import timeit
from collections.abc import Callable

from backends.contracts import FleetSnapshot, LoadTable, Replica, ReplicaState
from gateway.clock import SystemClock
from gateway.config.model import Telemetry as TelemetryConfig
from gateway.telemetry.access import AccessLog
from gateway.telemetry.hub import Telemetry
from gateway.telemetry.ids import IdSource, parse_context
from gateway.telemetry.lines import LineWriter
from gateway.telemetry.metrics import ExchangeMetrics
from gateway.telemetry.record import ExchangeRecord
from gateway.telemetry.sampling import Sampler
from gateway.telemetry.spans import SpanBuilder

TRACE_BAR_US = 8.0
LOG_BAR_US = 8.0
ROUNDS = 10_000
REPLICA = Replica("a/0", "a", "http://127.0.0.1:8000", 0, ReplicaState.READY)
CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"


def best_us(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """Microseconds of CPU of one call: the best of nine rounds, since others share the machine."""
    return min(timeit.repeat(call, timer=time.thread_time, number=rounds, repeat=9)) / rounds * 1e6


def fill(record: ExchangeRecord) -> None:
    """What a pipeline notes of a streamed exchange with one attempt."""
    now = time.monotonic
    record.endpoint, record.dialect, record.client = "/v1/chat/completions", "chat", "127.0.0.1"
    record.tenant, record.key_id, record.model, record.resolved = "team", "k1", "glm", "glm"
    record.stream, record.received_bytes = True, 1024
    record.deciding = now()
    record.decided = now()
    attempt = record.attempt(REPLICA, "vllm", now())
    record.traceparent(attempt)
    attempt.connected, attempt.first_byte = now(), now()
    attempt.status, attempt.received_bytes, attempt.ended = 200, 4096, now()
    record.first_token = now()
    record.prompt_tokens, record.cached_tokens, record.completion_tokens = 600, 512, 64
    record.status, record.finish_reason, record.sent_bytes = 200, "stop", 4096


def tracing(sampler: Sampler, traceparent: str | None) -> Callable[[], bool]:
    """Create, fill and finish one record."""
    ids = IdSource()

    def exchange() -> bool:
        parent = parse_context(traceparent) if traceparent else None
        record = sampler.start(ids, "req_1", parent, time.monotonic(), time.time())
        fill(record)
        record.ended = time.monotonic()
        return sampler.keeps(record)

    return exchange


def hub() -> Callable[[], None]:
    """All of it together, as the pipeline calls it."""
    fleet = FleetSnapshot(1, (REPLICA,), {"a": (REPLICA,)}, LoadTable(1))
    telemetry = Telemetry(
        TelemetryConfig(sample_ratio=0.01),
        clock=SystemClock(),
        ids=IdSource(),
        snapshot=lambda: fleet,
        lines=LineWriter(lambda _: None, limit=ROUNDS * 10),
        version="0",
    )

    def exchange() -> None:
        record = telemetry.start("req_1")
        fill(record)
        telemetry.finish(record)

    return exchange


def main() -> int:
    """Measure; the bars hold for an unkept exchange and for a log line."""
    record = Sampler(0.0, 30.0).start(IdSource(), "req_1", None, time.monotonic(), time.time())
    fill(record)
    record.ended = time.monotonic()
    log, metrics, builder = AccessLog(lambda _: None), ExchangeMetrics(), SpanBuilder({}, IdSource())
    unkept = best_us(tracing(Sampler(0.0, 30.0), None))
    joined = best_us(tracing(Sampler(0.0, 30.0), CALLER))
    line = best_us(lambda: log.exchange(record))
    counted = best_us(lambda: metrics.observe(record))
    spans = best_us(lambda: builder.build(record, ()), 500)
    total = best_us(hub())
    passed = max(unkept, joined) <= TRACE_BAR_US and line <= LOG_BAR_US
    print(
        f"{'PASS' if passed else 'FAIL'} trace: unkept {unkept:.2f} us, in a caller's trace {joined:.2f} us "
        f"(bar {TRACE_BAR_US:g}), log line {line:.2f} us (bar {LOG_BAR_US:g}), metrics {counted:.2f} us, "
        f"all together {total:.2f} us; a kept one {spans:.0f} us more, in the exporter's thread"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
