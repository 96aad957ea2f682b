"""Prometheus metrics of the cost model: predicted against observed times, read when somebody scrapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from policies.cost_model.facts import Score

_LABELS = ("pool", "replica", "of")


class CostMetrics(Collector):
    """The moving error of each replica's time to first token (`ttft`) and time per output token (`per_token`)."""

    def __init__(self, scores: Callable[[], Sequence[Score]]) -> None:
        """`scores` gives the cost model's scores at the moment of a scrape."""
        self._scores = scores

    def collect(self) -> Iterator[Metric]:
        """All families, for prometheus-client."""
        error = GaugeMetricFamily(
            "headrace_prediction_error_ratio", "Moving mean of |observed - predicted| / observed.", labels=_LABELS
        )
        seen = CounterMetricFamily("headrace_predictions", "Times observed that were predicted.", labels=_LABELS)
        for score in self._scores():
            for of, ratio, count in (
                ("ttft", score.ttft_error, score.ttft_seen),
                ("per_token", score.pace_error, score.pace_seen),
            ):
                labels = (score.pool, score.replica, of)
                seen.add_metric(labels, count)
                if count:  # an error of 0 would say that it is predicted well
                    error.add_metric(labels, ratio)
        yield error
        yield seen
