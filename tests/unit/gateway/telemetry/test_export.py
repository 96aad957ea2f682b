from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from gateway.telemetry.export import ExportCounts, Kept, SpanExporter
from gateway.telemetry.spans import Otlp
from tests.support.otlp import collector
from tests.unit.gateway.telemetry.conftest import finished

RESOURCE = {"service.name": "headrace"}


def until(condition: Callable[[], bool], limit_s: float = 20.0) -> None:
    deadline = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_kept_exchanges_reach_the_collector_and_closing_sends_the_rest() -> None:
    counts = ExportCounts()
    with collector() as sink:
        exporter = SpanExporter(sink.url, RESOURCE, counts, period_s=60.0)
        exporter.start()
        for _ in range(100):
            exporter.offer(Kept(finished(), ()))
        exporter.close(20.0)
        assert len(sink.spans) == 400
        assert sink.resource["service.name"] == "headrace"
    assert (counts.exported, counts.dropped) == (100, 0)


def test_encoding_rests_before_each_exchange() -> None:
    with collector() as sink:
        otlp = Otlp(sink.url, RESOURCE)
        began = time.monotonic()
        assert otlp.send([(finished(), ())] * 8, 0.05)
        assert time.monotonic() - began >= 8 * 0.05
        assert len(sink.spans) == 8 * 4
        otlp.shutdown()


def test_spans_leave_without_being_asked() -> None:
    with collector() as sink:
        exporter = SpanExporter(sink.url + "/", RESOURCE, ExportCounts(), period_s=0.01)
        exporter.start()
        exporter.offer(Kept(finished(), ()))
        sink.wait(4)
        exporter.close()


def test_what_does_not_fit_is_dropped_and_counted() -> None:
    counts = ExportCounts()
    exporter = SpanExporter("http://127.0.0.1:9", RESOURCE, counts, limit=10)
    for _ in range(25):
        exporter.offer(Kept(finished(), ()))
    exporter.close()
    assert (counts.refused, counts.dropped) == (15, 15)


@pytest.mark.parametrize("status", [400, 404])
def test_a_collector_that_refuses_is_counted(status: int) -> None:
    counts = ExportCounts()
    with collector() as sink:
        sink.status = status
        exporter = SpanExporter(sink.url, RESOURCE, counts, period_s=0.01)
        exporter.start()
        exporter.offer(Kept(finished(), ()))
        until(lambda: counts.failed == 1)
        sink.status = 200
        exporter.offer(Kept(finished(), ()))
        until(lambda: counts.exported == 1)
        exporter.close()


def test_closing_ends_a_send_that_waits_to_try_again() -> None:
    counts = ExportCounts()
    with collector() as sink:
        sink.status = 503
        exporter = SpanExporter(sink.url, RESOURCE, counts, period_s=0.01)
        exporter.start()
        exporter.offer(Kept(finished(), ()))
        until(lambda: sink.requests > 0)
        exporter.close(0.0)
        until(lambda: counts.failed == 1, 5.0)  # left alone it would try for ten seconds
