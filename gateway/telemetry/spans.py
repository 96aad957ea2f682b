"""OpenTelemetry spans of a kept exchange: exchange, decision, attempts. Loads the SDK; see `export`."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, TraceFlags, TraceState
from opentelemetry.trace.status import Status, StatusCode

from backends.contracts import Candidate
from gateway.telemetry import attributes as say
from gateway.telemetry.ids import IdSource
from gateway.telemetry.record import AttemptRecord, ExchangeRecord, Value

_SEND_TIMEOUT_S = 10.0  # of one batch, retries included
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)
_Mark = tuple[str, float, Mapping[str, Value]]  # an event: name, monotonic seconds, attributes


class SpanBuilder:
    """Turns records into spans. Not to be shared between threads, as its ids are not."""

    __slots__ = ("_ids", "_resource", "_scope")

    def __init__(self, resource: Mapping[str, str], ids: IdSource) -> None:
        """`resource` are the attributes of this process; `ids` names the decision spans."""
        self._resource = Resource.create(dict(resource))
        self._scope = InstrumentationScope("headrace", resource.get("service.version", ""))
        self._ids = ids

    def build(self, record: ExchangeRecord, candidates: Sequence[Candidate]) -> list[ReadableSpan]:
        """The spans of one finished exchange, its own first."""
        trace = _Trace(record, self._resource, self._scope)
        spans = [trace.exchange()]
        if record.decided:
            spans.append(trace.decision(self._ids.hex(16), candidates))
        for number, attempt in enumerate(record.attempts, 1):
            spans.append(trace.attempt(attempt, number))
            if attempt.prefill is not None:
                spans.append(trace.prefill(attempt, attempt.prefill, number))
        return spans


class _Trace:
    """What the spans of one exchange share."""

    __slots__ = ("_context", "_origin_ns", "_record", "_resource", "_scope", "_state")

    def __init__(self, record: ExchangeRecord, resource: Resource, scope: InstrumentationScope) -> None:
        self._record = record
        self._resource = resource
        self._scope = scope
        self._state = TraceState.from_header([record.tracestate]) if record.tracestate else None
        self._origin_ns = int(record.wall * 1e9)  # a double holds Unix nanoseconds to about 240 ns
        self._context = self._span_context(record.span_id)

    def exchange(self) -> ReadableSpan:
        record = self._record
        attributes = say.exchange_attributes(record)
        operation, model = say.operation(record.endpoint), record.resolved
        # A 4xx is the client's doing: by the conventions no error of a server span.
        broken = record.status >= 500 or (record.error and record.status < 400)
        return self._span(
            f"{operation} {model}" if model else operation,
            SpanKind.SERVER,
            self._context,
            self._span_context(record.parent_id, remote=True) if record.parent_id else None,
            (record.started, record.ended),
            attributes,
            say.as_events(record),
            Status(StatusCode.ERROR, say.error_type(record)) if broken else Status(StatusCode.UNSET),
        )

    def decision(self, span_id: str, candidates: Sequence[Candidate]) -> ReadableSpan:
        record = self._record
        return self._span(
            "decision",
            SpanKind.INTERNAL,
            self._span_context(span_id),
            self._context,
            (record.deciding, record.decided),
            say.decision_attributes(record, candidates),
            [("candidate", record.decided, say.candidate_attributes(one)) for one in say.best_first(candidates)],
            Status(StatusCode.UNSET),
        )

    def attempt(self, attempt: AttemptRecord, number: int) -> ReadableSpan:
        return self._call("attempt", attempt, self._context, number)

    def prefill(self, attempt: AttemptRecord, prefill: AttemptRecord, number: int) -> ReadableSpan:
        """The other side of a pair, below the attempt that it was part of."""
        return self._call("prefill", prefill, self._span_context(attempt.span_id), number)

    def _call(self, name: str, attempt: AttemptRecord, parent: SpanContext, number: int) -> ReadableSpan:
        """One request to one engine."""
        marks: tuple[_Mark, ...] = (("connected", attempt.connected, {}), ("first_byte", attempt.first_byte, {}))
        return self._span(
            name,
            SpanKind.CLIENT,
            self._span_context(attempt.span_id),
            parent,
            (attempt.started, attempt.ended or self._record.ended),
            say.attempt_attributes(self._record, attempt, number),
            [mark for mark in marks if mark[1]],
            Status(StatusCode.ERROR, attempt.message) if attempt.fault else Status(StatusCode.UNSET),
        )

    def _span(
        self,
        name: str,
        kind: SpanKind,
        context: SpanContext,
        parent: SpanContext | None,
        times: tuple[float, float],
        attributes: say.Attributes,
        marks: Iterable[_Mark],
        status: Status,
    ) -> ReadableSpan:
        return ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            attributes,
            [Event(event, extra, self._wall_ns(at)) for event, at, extra in marks],
            kind=kind,
            status=status,
            start_time=self._wall_ns(times[0]),
            end_time=self._wall_ns(times[1]),
            instrumentation_scope=self._scope,
        )

    def _span_context(self, span_id: str, *, remote: bool = False) -> SpanContext:
        return SpanContext(int(self._record.trace_id, 16), int(span_id, 16), remote, _SAMPLED, self._state)

    def _wall_ns(self, at: float) -> int:
        return self._origin_ns + int((at - self._record.started) * 1e9)


class _Unhurried(list[ReadableSpan]):
    """Spans that are read with a rest before each exchange.

    The SDK encodes while it reads: a third of a millisecond for an exchange. On one core, whoever waits for
    that core waits for what is done without a rest.
    """

    def __init__(self, rest_s: float) -> None:
        super().__init__()
        self._rest_s = rest_s

    def __iter__(self) -> Iterator[ReadableSpan]:
        for span in super().__iter__():
            if span.kind is SpanKind.SERVER:
                time.sleep(self._rest_s)
            yield span


class Otlp:
    """One collector, reached over OTLP/HTTP. Blocks, so it belongs to a thread that may wait.

    Headers for it, credentials among them, come from `OTEL_EXPORTER_OTLP_HEADERS`.
    """

    __slots__ = ("_builder", "_exporter")

    def __init__(self, endpoint: str, resource: Mapping[str, str]) -> None:
        """`endpoint` is the base URL, e.g. http://collector:4318."""
        self._builder = SpanBuilder(resource, IdSource())
        self._exporter: SpanExporter = OTLPSpanExporter(endpoint.rstrip("/") + "/v1/traces", timeout=_SEND_TIMEOUT_S)

    def send(self, batch: Iterable[tuple[ExchangeRecord, Sequence[Candidate]]], rest_s: float) -> bool:
        """Build and send the spans of some exchanges, with a rest of `rest_s` before each.

        False when the collector did not take them.
        """
        spans = _Unhurried(rest_s)
        for record, candidates in batch:
            spans += self._builder.build(record, candidates)
        return self._exporter.export(spans) is SpanExportResult.SUCCESS

    def shutdown(self) -> None:
        """End at once, also a send that waits to try again."""
        self._exporter.shutdown()
