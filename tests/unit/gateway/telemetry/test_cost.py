from __future__ import annotations

from gateway.telemetry.cost import CostMetrics
from policies.cost_model.facts import Score
from tests.unit.gateway.telemetry.test_metrics import scrape


def test_errors_of_times_per_replica() -> None:
    scores = (Score("a", "a/0", 0.25, 40, 0.125, 12), Score("a", "a/1", 0.0, 0, 0.0, 0))
    samples = scrape(CostMetrics(lambda: scores))
    # Labels are in the order of their names: of, pool, replica.
    assert samples["headrace_prediction_error_ratio", "ttft", "a", "a/0"] == 0.25
    assert samples["headrace_prediction_error_ratio", "per_token", "a", "a/0"] == 0.125
    assert samples["headrace_predictions_total", "ttft", "a", "a/0"] == 40
    assert samples["headrace_predictions_total", "per_token", "a", "a/0"] == 12


def test_what_was_never_observed_has_no_error() -> None:
    samples = scrape(CostMetrics(lambda: (Score("a", "a/1", 0.0, 0, 0.0, 0),)))
    assert samples["headrace_predictions_total", "ttft", "a", "a/1"] == 0
    assert not [key for key in samples if key[0] == "headrace_prediction_error_ratio"]
