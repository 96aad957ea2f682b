from __future__ import annotations

import pytest
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased

from gateway.telemetry.ids import IdSource, TraceContext
from gateway.telemetry.sampling import Sampler
from tests.unit.gateway.telemetry.conftest import finished

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


@pytest.mark.parametrize("ratio", [0.0, 0.001, 0.01, 0.5, 0.999, 1.0])
def test_the_share_is_the_one_that_sdks_keep(ratio: float) -> None:
    ids, sampler, peer = IdSource(), Sampler(ratio, 30.0), TraceIdRatioBased(ratio)
    for trace_id in (ids.hex(32) for _ in range(2000)):
        kept = peer.should_sample(None, int(trace_id, 16), "x").decision.is_sampled()
        assert sampler.sampled(trace_id) is kept


@pytest.mark.parametrize("sampled", [True, False])
@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_a_caller_that_has_decided_is_followed(sampled: bool, ratio: float) -> None:
    parent = TraceContext(TRACE, "00f067aa0ba902b7", sampled, "v=1")
    record = Sampler(ratio, 30.0).start(IdSource(), "r", parent, 1.0, 2.0)
    assert (record.trace_id, record.parent_id, record.tracestate) == (TRACE, parent.span_id, "v=1")
    assert record.sampled is sampled
    assert record.span_id != parent.span_id


def test_a_trace_that_begins_here_has_no_parent() -> None:
    record = Sampler(1.0, 30.0).start(IdSource(), "r", None, 1.0, 2.0)
    assert record.sampled
    assert record.parent_id == ""
    assert len(record.trace_id) == 32


def test_errors_and_slow_exchanges_are_kept_whatever_the_share() -> None:
    never = Sampler(0.0, 30.0)
    plain, refused, broken, slow = (finished(never) for _ in range(4))
    refused.status = 429
    broken.error = "truncated"
    slow.ended = slow.started + 30.0
    assert [never.keeps(record) for record in (plain, refused, broken, slow)] == [False, True, True, True]
