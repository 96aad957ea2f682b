from __future__ import annotations

import json

import pytest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind
from opentelemetry.trace.status import StatusCode

from gateway.telemetry.ids import TraceContext
from gateway.telemetry.record import AttemptRecord, ExchangeRecord
from gateway.telemetry.sampling import Sampler
from gateway.telemetry.spans import SpanBuilder
from tests.unit.gateway.telemetry.conftest import A0, WALL, counting_ids, finished


def spans_of(record: ExchangeRecord) -> list[ReadableSpan]:
    builder = SpanBuilder({"service.name": "headrace", "service.version": "1.2.3"}, counting_ids())
    return builder.build(record, record.decision.candidates if record.decision else ())


def test_exchange_decision_and_attempts_hang_together() -> None:
    record = finished()
    exchange, decision, first, second = spans_of(record)
    assert [span.name for span in (exchange, decision, first, second)] == ["chat glm", "decision", "attempt", "attempt"]
    assert [span.kind for span in (exchange, decision, first, second)] == [
        SpanKind.SERVER,
        SpanKind.INTERNAL,
        SpanKind.CLIENT,
        SpanKind.CLIENT,
    ]
    assert exchange.parent is None
    assert {span.parent.span_id for span in (decision, first, second) if span.parent} == {int(record.span_id, 16)}
    assert {f"{span.context.trace_id:032x}" for span in (exchange, decision, first, second)} == {record.trace_id}
    sent = [attempt.span_id for attempt in record.attempts]
    assert [f"{span.context.span_id:016x}" for span in (first, second)] == sent
    assert exchange.resource.attributes["service.version"] == "1.2.3"


def test_the_other_side_of_a_pair_hangs_below_its_attempt() -> None:
    record = finished()
    attempt = record.attempts[1]
    attempt.prefill = prefill = AttemptRecord(A0, "sglang", "00000000000000aa", 100.0041)
    prefill.ended, prefill.status = 100.1, 200
    spans = spans_of(record)
    assert [span.name for span in spans] == ["chat glm", "decision", "attempt", "attempt", "prefill"]
    prefill = spans[-1]
    assert prefill.parent is not None
    assert prefill.parent.span_id == int(attempt.span_id, 16)
    assert prefill.attributes is not None
    assert prefill.attributes["headrace.replica"] == "a/0"
    assert prefill.attributes["headrace.attempt.number"] == 2


def test_times_are_wall_times() -> None:
    exchange, decision, first, second = spans_of(finished())
    origin = int(WALL * 1e9)
    assert exchange.start_time == origin
    assert exchange.end_time == pytest.approx(origin + 1.25e9, abs=1000)
    assert decision.start_time == pytest.approx(origin + 1e6, abs=1000)
    assert first.end_time == pytest.approx(origin + 3e6, abs=1000)
    assert [(event.name, event.timestamp) for event in second.events] == [
        ("connected", pytest.approx(origin + 5e6, abs=1000)),
        ("first_byte", pytest.approx(origin + 2e8, abs=1000)),
    ]


def test_candidates_are_events_of_the_decision() -> None:
    decision = spans_of(finished())[1]
    assert [event.attributes["headrace.replica"] for event in decision.events if event.attributes] == [
        "a/0",
        "b/0",
        "c/0",
    ]


def test_a_failed_attempt_is_an_error_and_the_exchange_it_recovered_is_not() -> None:
    exchange, _, first, second = spans_of(finished())
    assert (first.status.status_code, first.status.description) == (StatusCode.ERROR, "connection refused")
    assert [exchange.status.status_code, second.status.status_code] == [StatusCode.UNSET] * 2


@pytest.mark.parametrize(
    ("status", "error", "code"),
    [
        (503, "overloaded", StatusCode.ERROR),
        (200, "truncated", StatusCode.ERROR),
        (404, "model_not_found", StatusCode.UNSET),
        (499, "client_gone", StatusCode.UNSET),
    ],
)
def test_what_the_client_did_is_no_error_of_the_server(status: int, error: str, code: StatusCode) -> None:
    record = finished()
    record.status, record.error = status, error
    exchange = spans_of(record)[0]
    assert exchange.status.status_code is code
    assert exchange.attributes
    assert exchange.attributes["error.type"] == error


def test_a_callers_span_is_the_parent_and_its_state_is_kept() -> None:
    parent = TraceContext("4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7", True, "vendor=1,other=2")
    record = Sampler(0.0, 30.0).start(counting_ids(), "r", parent, 100.0, WALL)
    record.endpoint, record.ended, record.status = "/v1/models", 100.1, 401
    (exchange,) = spans_of(record)
    assert exchange.parent
    assert (exchange.parent.span_id, exchange.parent.is_remote) == (0x00F067AA0BA902B7, True)
    assert exchange.context
    assert exchange.context.trace_state.to_header() == "vendor=1,other=2"
    assert exchange.context.trace_flags.sampled


def test_an_attempt_that_was_never_closed_ends_with_its_exchange() -> None:
    record = finished()
    record.attempts[1].ended = 0.0
    exchange, *_, second = spans_of(record)
    assert second.end_time == exchange.end_time


def test_events_between_attempts_are_on_the_exchange() -> None:
    record = finished()
    record.event("retry_denied", 100.5, {"reason": "budget"})
    exchange = spans_of(record)[0]
    assert [(event.name, dict(event.attributes or {})) for event in exchange.events] == [
        ("retry_denied", {"reason": "budget"})
    ]


def test_spans_can_be_written_out() -> None:
    for span in spans_of(finished()):
        assert json.loads(span.to_json())["name"] == span.name
