from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import replace

import pytest

from backends.contracts import Candidate
from gateway.config.model import Telemetry as TelemetryConfig
from gateway.telemetry.hub import Telemetry
from gateway.telemetry.lines import LineWriter
from gateway.telemetry.metrics import render
from tests.support.otlp import attributes, collector
from tests.unit.gateway.telemetry.conftest import A0, ManualClock, finished

Make = Callable[..., tuple[Telemetry, LineWriter]]


def scrape(telemetry: Telemetry) -> str:
    return render(telemetry.gather(), "")[0].decode()


def value(telemetry: Telemetry, name: str) -> float:
    found = [line for line in scrape(telemetry).splitlines() if line.startswith(name + " ")]
    assert len(found) == 1
    return float(found[0].split()[1])


def test_an_exchange_is_live_then_recent(make_telemetry: Make, clock: ManualClock, lines: list[bytes]) -> None:
    telemetry, writer = make_telemetry()
    record = telemetry.start("req_1")
    assert telemetry.live == {record}
    assert value(telemetry, "headrace_exchanges_in_flight") == 1
    clock.now += 2.0
    telemetry.finish(record)
    assert record.ended - record.started == 2.0
    assert (telemetry.live, list(telemetry.recent)) == (set(), [record])
    assert value(telemetry, "headrace_exchanges_in_flight") == 0
    writer.close()
    assert [json.loads(line)["request_id"] for line in lines] == ["req_1"]


def test_finishing_twice_counts_once(make_telemetry: Make, lines: list[bytes]) -> None:
    telemetry, writer = make_telemetry()
    record = telemetry.start("req_1")
    record.status = 200
    telemetry.finish(record)
    telemetry.finish(record)
    telemetry.tell()
    telemetry.tell()
    writer.close()
    assert len(lines) == len(telemetry.recent) == 1
    assert 'headrace_exchanges_total{dialect="",model="other",pool="",status="2xx"} 1.0' in scrape(telemetry)


def test_a_caller_is_joined_and_a_malformed_one_ignored(make_telemetry: Make) -> None:
    telemetry, writer = make_telemetry(sample_ratio=0)
    trace = "4bf92f3577b34da6a3ce929d0e0e4736"
    joined = telemetry.start("r", f"00-{trace}-00f067aa0ba902b7-01", "v=1")
    alone = telemetry.start("r", "nonsense", "v=1")
    writer.close()
    assert (joined.trace_id, joined.sampled, joined.tracestate) == (trace, True, "v=1")
    assert (alone.parent_id, alone.sampled, alone.tracestate) == ("", False, "")


def test_the_access_log_can_be_off(make_telemetry: Make, lines: list[bytes]) -> None:
    telemetry, writer = make_telemetry(access_log=False)
    telemetry.finish(telemetry.start("r"))
    telemetry.tell()
    writer.close()
    assert lines == []


def test_one_that_cannot_be_told_of_takes_no_other_with_it(make_telemetry: Make, lines: list[bytes]) -> None:
    telemetry, writer = make_telemetry()
    records = [telemetry.start(name) for name in ("a", "b", "c")]
    records[1].attempts = [None]  # type: ignore[list-item]
    for record in records:
        telemetry.finish(record)
    telemetry.tell()
    writer.close()
    assert [json.loads(line)["request_id"] for line in b"".join(lines).splitlines()] == ["a", "c"]


async def test_no_exchange_waits_long_to_be_told_of(make_telemetry: Make, lines: list[bytes]) -> None:
    telemetry, writer = make_telemetry()
    telling = asyncio.create_task(telemetry.run())
    telemetry.finish(telemetry.start("lonely"))
    async with asyncio.timeout(2.0):
        while not lines:
            await asyncio.sleep(0.02)
    telling.cancel()
    for _ in range(100):
        telemetry.finish(telemetry.start("crowd"))
    writer.close()
    told = [json.loads(line)["request_id"] for line in b"".join(lines).splitlines()]
    assert told[0] == "lonely"
    assert 80 <= told.count("crowd") <= 100


def test_recent_exchanges_are_bounded(make_telemetry: Make) -> None:
    telemetry, writer = make_telemetry(access_log=False)
    for _ in range(1000):
        telemetry.finish(telemetry.start("r"))
    writer.close()
    assert len(telemetry.recent) == 256


def test_evidence_is_asked_for_only_when_the_exchange_is_kept(make_telemetry: Make) -> None:
    asked: list[str] = []

    def explain() -> tuple[Candidate, ...]:
        asked.append("asked")
        return (Candidate("a/0", 1.0),)

    decision = finished().decision
    assert decision is not None
    with collector() as sink:
        telemetry, writer = make_telemetry(otlp_endpoint=sink.url, sample_ratio=0)
        telemetry.open()
        for status in (200, 500):
            record = telemetry.start("r")
            record.status, record.decision = status, replace(decision, explain=explain)
            record.deciding = record.decided = record.started
            telemetry.finish(record)
        telemetry.close(10.0)
        writer.close()
        assert asked == ["asked"]
        decided = [span for span in sink.spans if span.name == "decision"]
        assert [attributes(event)["headrace.replica"] for span in decided for event in span.events] == ["a/0"]
    assert value(telemetry, "headrace_traces_exported_total") == 1


def test_a_new_configuration_changes_sampling_log_and_collector(make_telemetry: Make, lines: list[bytes]) -> None:
    with collector() as old, collector() as new:
        telemetry, writer = make_telemetry(otlp_endpoint=old.url, sample_ratio=1)
        telemetry.open()
        telemetry.finish(telemetry.start("first"))
        telemetry.apply(TelemetryConfig(otlp_endpoint=new.url, sample_ratio=0, access_log=False))
        telemetry.finish(telemetry.start("second"))
        broken = telemetry.start("third")
        broken.status = 500
        telemetry.finish(broken)
        telemetry.close(10.0)
        writer.close()
        assert len(old.wait(1)) == 1  # what was queued for the old one still reaches it
        assert [attributes(span)["headrace.request.id"] for span in new.wait(1)] == ["third"]
    assert telemetry.generation == 2
    assert value(telemetry, "headrace_config_generation") == 2
    assert [json.loads(line)["request_id"] for line in lines] == ["first"]


def test_the_same_collector_is_kept_over_a_reload(make_telemetry: Make) -> None:
    with collector() as sink:
        telemetry, writer = make_telemetry(otlp_endpoint=sink.url, sample_ratio=1)
        telemetry.open()
        telemetry.apply(TelemetryConfig(otlp_endpoint=sink.url, sample_ratio=1))
        telemetry.finish(telemetry.start("r"))
        telemetry.close(10.0)
        writer.close()
        assert len(sink.spans) == 1


def test_replicas_are_in_the_scrape(make_telemetry: Make) -> None:
    telemetry, writer = make_telemetry()
    writer.close()
    assert f'headrace_replica_exchanges{{pool="a",replica="{A0.id}"}} 0.0' in scrape(telemetry)


@pytest.mark.parametrize("ratio", [0.0, 1.0])
def test_without_a_collector_nothing_is_kept_or_dropped(make_telemetry: Make, ratio: float) -> None:
    telemetry, writer = make_telemetry(sample_ratio=ratio)
    telemetry.open()
    telemetry.finish(telemetry.start("r"))
    telemetry.close()
    writer.close()
    assert value(telemetry, "headrace_traces_dropped_total") == 0
    assert value(telemetry, "headrace_traces_exported_total") == 0
