from __future__ import annotations

import pytest
from prometheus_client.parser import text_string_to_metric_families

from backends.contracts import Fault, FleetSnapshot, LoadTable
from gateway.telemetry.metrics import (
    ExchangeMetrics,
    FleetMetrics,
    Gathered,
    Histogram,
    IncidentMetrics,
    ProcessMetrics,
    Sample,
    build_registry,
    render,
)
from tests.unit.gateway.telemetry.conftest import A0, B0, finished

Samples = dict[tuple[str, ...], float]


def scrape(*collectors: object) -> Samples:
    """Samples by (name, label values in the order of their names)."""
    body, content_type = render(Gathered(build_registry(collectors)), "")  # type: ignore[arg-type]
    assert content_type.startswith("text/plain")
    return {
        (sample.name, *(value for _, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(body.decode())
        for sample in family.samples
    }


def test_one_exchange_is_counted_in_every_family() -> None:
    metrics = ExchangeMetrics()
    metrics.observe(finished())
    samples = scrape(metrics)
    labels = ("chat", "glm", "b")
    assert samples["headrace_exchanges_total", *labels, "2xx"] == 1
    assert samples["headrace_exchange_duration_seconds_count", *labels] == 1
    assert samples["headrace_exchange_duration_seconds_sum", *labels] == pytest.approx(1.25)
    assert samples["headrace_time_to_first_token_seconds_sum", *labels] == pytest.approx(0.25)
    assert samples["headrace_time_per_output_token_seconds_sum", *labels] == pytest.approx(0.025)
    counted = {kind: samples["headrace_tokens_total", "chat", kind, "glm", "b"] for kind in ("prompt", "cached")}
    assert counted == {"prompt": 600, "cached": 512}
    assert samples["headrace_tokens_total", "chat", "completion", "glm", "b"] == 41
    assert samples["headrace_tokens_total", "chat", "reasoning", "glm", "b"] == 7
    assert samples["headrace_attempts_total", "connect", "a"] == 1
    assert samples["headrace_attempts_total", "ok", "b"] == 1
    assert samples["headrace_retries_total", "b"] == 1
    assert samples["headrace_decision_seconds_sum",] == pytest.approx(0.0002)


@pytest.mark.parametrize(("status", "name"), [(204, "2xx"), (404, "4xx"), (499, "4xx"), (503, "5xx"), (0, "none")])
def test_statuses_are_counted_by_class(status: int, name: str) -> None:
    metrics, record = ExchangeMetrics(), finished()
    record.status = status
    metrics.observe(record)
    assert scrape(metrics)["headrace_exchanges_total", "chat", "glm", "b", name] == 1


def test_an_exchange_refused_before_routing_has_no_pool_and_no_times_it_did_not_reach() -> None:
    metrics, record = ExchangeMetrics(), finished()
    record.attempts, record.resolved, record.first_token, record.decided = [], "", 0.0, 0.0
    record.status = 404
    metrics.observe(record)
    samples = scrape(metrics)
    assert samples["headrace_exchanges_total", "chat", "other", "", "4xx"] == 1
    assert samples["headrace_time_to_first_token_seconds_count", "chat", "other", ""] == 0
    assert samples["headrace_decision_seconds_count",] == 0


def test_names_that_clients_invent_make_no_series() -> None:
    metrics, record = ExchangeMetrics(), finished()
    record.resolved = ""
    for number in range(100):
        record.model = f"invented-{number}"
        metrics.observe(record)
    exchanges = [labels for labels in scrape(metrics) if labels[0] == "headrace_exchanges_total"]
    assert exchanges == [("headrace_exchanges_total", "chat", "other", "b", "2xx")]


def test_the_number_of_series_is_bounded_whatever_the_configurations_were() -> None:
    metrics, record = ExchangeMetrics(), finished()
    for number in range(3000):
        record.resolved = f"model-{number}"
        metrics.observe(record)
    samples = {labels: value for labels, value in scrape(metrics).items() if labels[0] == "headrace_exchanges_total"}
    assert len(samples) == 1025
    assert sum(samples.values()) == 3000
    assert samples["headrace_exchanges_total", "chat", "other", "other", "2xx"] == 3000 - 1024


def test_buckets_are_cumulative_and_bounds_are_inclusive() -> None:
    histogram = Histogram((0.1, 1.0))
    for seconds in (0.05, 0.1, 0.5, 1.0, 7.0):
        histogram.observe(seconds)
    assert histogram.cumulative() == [("0.1", 2), ("1.0", 4), ("+Inf", 5)]
    assert histogram.sum == pytest.approx(8.65)


def test_every_fault_is_an_outcome() -> None:
    metrics, record = ExchangeMetrics(), finished()
    for fault in Fault:
        record.attempts[1].fault = fault
        metrics.observe(record)
    outcomes = {labels[1] for labels in scrape(metrics) if labels[0] == "headrace_attempts_total"}
    assert outcomes == {fault.value for fault in Fault}


def test_gauges_of_replicas_are_read_when_scraped() -> None:
    table = LoadTable(2)
    fleet = FleetMetrics(lambda: FleetSnapshot(1, (A0, B0), {}, table))
    table.exchanges[1], table.prefill_tokens[1], table.context_tokens[1] = 3, 100, 900
    samples = scrape(fleet)
    assert samples["headrace_replica_exchanges", "a", "a/0"] == 0
    assert samples["headrace_replica_exchanges", "b", "b/0"] == 3
    assert samples["headrace_replica_prefill_tokens", "b", "b/0"] == 100
    assert samples["headrace_replica_context_tokens", "b", "b/0"] == 900
    assert samples["headrace_replica_state", "b", "b/0", "ready"] == 1
    assert samples["headrace_leases",] == 3


def test_incidents_are_counted_by_pool_and_term() -> None:
    incidents = IncidentMetrics()
    for pool, term in (("a", "storage"), ("a", "storage"), ("b", "max_context")):
        incidents.count(pool, term)
    samples = scrape(incidents)
    assert samples["headrace_contract_incidents_total", "a", "storage"] == 2
    assert samples["headrace_contract_incidents_total", "b", "max_context"] == 1


def test_pools_that_come_and_go_do_not_make_incident_series_for_ever() -> None:
    incidents = IncidentMetrics()
    for number in range(1030):
        incidents.count(f"p{number}", "storage")
    samples = {labels: value for labels, value in scrape(incidents).items() if labels[0].startswith("headrace_contr")}
    assert sum(samples.values()) == 1030
    assert samples["headrace_contract_incidents_total", "other", "storage"] == 6


def test_values_of_other_parts_and_the_build() -> None:
    process = ProcessMetrics(
        "1.2.3",
        (Sample("headrace_x", "A gauge.", lambda: 2), Sample("headrace_y", "A counter.", lambda: 5, counts=True)),
    )
    samples = scrape(process)
    assert samples["headrace_x",] == 2
    assert samples["headrace_y_total",] == 5
    assert any(labels[0] == "headrace_build_info" and "1.2.3" in labels for labels in samples)
    assert ("process_resident_memory_bytes",) in samples


def test_openmetrics_on_request() -> None:
    values = Gathered(build_registry([ExchangeMetrics()]))
    body, content_type = render(values, "application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert body.endswith(b"# EOF\n")
