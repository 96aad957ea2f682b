"""The verdict of the bench must be able to fail."""

from __future__ import annotations

from tests.bench.harness import Figures, LoadReport, Spread, Start
from tests.bench.report import Results, bars, table, verdict

WORKLOADS = ("W1", "W2", "W4", "W6")


def figures(us: float, gap_p99_us: float = 20_000.0, peak_mb: float = 50.0, bad: int = 0) -> Figures:
    spread = Spread(10, us, us, us, us, us)
    gap = Spread(10, 20_000, 20_000, 20_000, gap_p99_us, gap_p99_us)
    load = LoadReport(10, 0, bad, 100.0, 10, 0.1, "", spread, gap_us=gap)
    return Figures(load, us, us, 1.0, 0.0, peak_mb)


def results(**us: float) -> dict[str, Results]:
    return {
        name.replace("_", "-"): Results([Start(0.5, 40.0)], {workload: [figures(cost)] * 3 for workload in WORKLOADS})
        for name, cost in us.items()
    }


def test_all_bars_hold() -> None:
    measured = results(direct=0, envoy=50, vllm_router=100, headrace=60)
    assert verdict("bench", bars(measured, WORKLOADS)).startswith("PASS bench: W1/vllm-router 0.60 (<= 1), ")


def test_each_bar_can_fail() -> None:
    measured = results(direct=0, envoy=50, vllm_router=100, headrace=110)
    measured["headrace"].starts = [Start(1.2, 40.0)]
    measured["headrace"].rounds["W4"] = [figures(110, gap_p99_us=21_100, peak_mb=95.0, bad=1)] * 3
    listed = bars(measured, WORKLOADS)
    assert [bar.name for bar in listed if bar.passed] == []
    assert verdict("bench", listed).startswith("FAIL bench: W1/vllm-router 1.10! (<= 1), ")


def test_what_was_not_measured_fails() -> None:
    assert not any(bar.passed for bar in bars({}, WORKLOADS))


def test_the_table_has_ratios_to_envoy() -> None:
    rows = table(results(direct=0, envoy=50, headrace=60), WORKLOADS).splitlines()
    assert "W1 µs/chunk (x envoy)" in rows[0]
    assert "60.0 (1.20)" in rows[-1]
