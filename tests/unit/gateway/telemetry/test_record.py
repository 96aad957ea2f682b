from __future__ import annotations

from gateway.telemetry.ids import IdSource, parse_context
from gateway.telemetry.sampling import Sampler
from tests.unit.gateway.telemetry.conftest import A0, B0, finished


def test_each_attempt_sends_its_own_span_in_the_exchanges_trace() -> None:
    record = finished()
    contexts = [parse_context(record.traceparent(attempt)) for attempt in record.attempts]
    assert [context.trace_id for context in contexts if context] == [record.trace_id] * 2
    assert len({record.span_id, *(context.span_id for context in contexts if context)}) == 3
    assert all(context and context.sampled for context in contexts)


def test_engines_are_not_told_to_trace_what_is_not_sampled() -> None:
    record = Sampler(0.0, 30.0).start(IdSource(), "r", None, 1.0, 2.0)
    assert record.traceparent(record.attempt(A0, "vllm", 1.0)).endswith("-00")


def test_the_pool_is_the_last_attempts() -> None:
    record = Sampler(0.0, 30.0).start(IdSource(), "r", None, 1.0, 2.0)
    assert record.pool == ""
    record.attempt(A0, "vllm", 1.0)
    record.attempt(B0, "sglang", 1.0)
    assert record.pool == "b"


def test_records_share_nothing() -> None:
    sampler, ids = Sampler(0.0, 30.0), IdSource()
    one, other = (sampler.start(ids, "r", None, 1.0, 2.0) for _ in range(2))
    one.attempt(A0, "vllm", 1.0)
    one.event("retry_denied", 1.0, {"budget": 0})
    assert other.attempts == []
    assert other.events is None
    assert one.events == [(1.0, "retry_denied", {"budget": 0})]
