"""Medians, the table of ratios, and the bars."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from tests.bench.harness import Figures, Start
from tests.bench.peers import OURS

Pick = Callable[[Figures], float | None]


@dataclass
class Results:
    """Everything measured for one candidate, every round of it."""

    starts: list[Start] = field(default_factory=list)
    rounds: dict[str, list[Figures]] = field(default_factory=dict)  # by workload

    def values(self, workload: str, pick: Pick) -> list[float]:
        """One figure of every round of a workload."""
        return [value for figures in self.rounds.get(workload, ()) if (value := pick(figures)) is not None]

    def median(self, workload: str, pick: Pick) -> float | None:
        """Median of a figure over the rounds; None when the workload was not run."""
        values = self.values(workload, pick)
        return statistics.median(values) if values else None

    def start_s(self) -> float | None:
        """Median seconds from exec to the first good answer."""
        return statistics.median(start.seconds for start in self.starts) if self.starts else None

    def peak_mb(self) -> float:
        """Highest memory over all rounds."""
        return max((figures.peak_mb for figures in self), default=0.0)

    def errors(self) -> int:
        """Answers that failed or were not what the mock sent."""
        return sum(figures.load.err + figures.load.bad for figures in self)

    def __iter__(self) -> Iterator[Figures]:
        return (figures for rounds in self.rounds.values() for figures in rounds)


@dataclass(frozen=True)
class Bar:
    """One figure that must not be above its limit. A figure of None could not be measured, which fails."""

    name: str
    figure: float | None
    limit: float

    @property
    def passed(self) -> bool:
        """Whether the figure is there and within its limit."""
        return self.figure is not None and self.figure <= self.limit

    def __str__(self) -> str:
        figure = "not measured" if self.figure is None else f"{self.figure:.2f}"
        return f"{self.name} {figure}{'' if self.passed else '!'} (<= {self.limit:g})"


def bars(results: Mapping[str, Results], workloads: Sequence[str]) -> list[Bar]:
    """What must hold. Ratios compare medians of the same run."""
    ours, envoy, router, direct = (results.get(name, Results()) for name in (OURS, "envoy", "vllm-router", "direct"))
    listed = [
        Bar("W1/vllm-router", _ratio(ours, router, "W1", _us_request), 1.0),
        Bar("W1/envoy", _ratio(ours, envoy, "W1", _us_request), 2.0),
        Bar("W2/vllm-router", _ratio(ours, router, "W2", _us_request), 0.75),
        Bar("W6/envoy", _ratio(ours, envoy, "W6", _us_chunk), 1.25),
    ]
    if "W4" in workloads:
        added_us = _added(ours, direct, "W4", _gap_p99)
        listed.append(Bar("W4 added inter-chunk p99 ms", None if added_us is None else added_us / 1e3, 1.0))
    listed += [Bar("peak MB", ours.peak_mb() or None, 90.0), Bar("start s", ours.start_s(), 1.0)]
    return [*listed, Bar("errors", ours.errors() if ours.rounds else None, 0.0)]


def verdict(name: str, listed: Sequence[Bar]) -> str:
    """The last line of a run."""
    word = "PASS" if all(bar.passed for bar in listed) else "FAIL"
    return f"{word} {name}: " + ", ".join(str(bar) for bar in listed)


def table(results: Mapping[str, Results], workloads: Sequence[str]) -> str:
    """A markdown table: CPU in µs with its ratio to envoy's, latency and chunk gaps as what was added to direct."""
    direct, envoy = results.get("direct", Results()), results.get("envoy", Results())
    cpu = [(name, *_cost_of(results, name)) for name in workloads if name != "L"]
    head = ["candidate", "start s", "peak MB", *(f"{name} µs/{unit} (x envoy)" for name, unit, _ in cpu)]
    head += ["added latency p50/p99 µs"] if "L" in workloads else []
    head += ["W4 added gap p99 ms (min..max)"] if "W4" in workloads else []
    rows = [[*head, "errors"]]
    for name, one in results.items():
        row = [name, _number(one.start_s(), 2), _number(one.peak_mb(), 0)]
        row += [_with_ratio(one.median(workload, pick), envoy.median(workload, pick)) for workload, _, pick in cpu]
        if "L" in workloads:
            row.append("/".join(_number(_added(one, direct, "L", pick), 0) for pick in (_latency_p50, _latency_p99)))
        if "W4" in workloads:
            row.append(_gap_cell(one, direct))
        rows.append([*row, str(one.errors())])
    return _markdown(rows)


def noise(results: Mapping[str, Results]) -> str:
    """How far the figures can be trusted: spread over the rounds and what else ran."""
    spreads = [
        (max(values) - min(values)) / statistics.median(values)
        for one in results.values()
        for workload in ("W1", "W2")
        if len(values := one.values(workload, _us_request)) > 1 and min(values) > 0
    ]
    spread = f"{statistics.median(spreads):.0%}, worst {max(spreads):.0%}" if spreads else "unknown (one round)"
    other = statistics.median(figures.other for one in results.values() for figures in one)
    return f"Spread of W1 and W2 over the rounds: {spread}. Cores used by others meanwhile: {other:.2f}."


def _us_request(figures: Figures) -> float | None:
    return figures.us_request


def _us_chunk(figures: Figures) -> float | None:
    return figures.us_chunk


def _latency_p50(figures: Figures) -> float | None:
    return figures.load.lat_us.p50


def _latency_p99(figures: Figures) -> float | None:
    return figures.load.lat_us.p99


def _gap_p99(figures: Figures) -> float | None:
    return figures.load.gap_us.p99 if figures.load.gap_us else None


def _cost_of(results: Mapping[str, Results], workload: str) -> tuple[str, Pick]:
    streams = any(one.median(workload, _us_chunk) is not None for one in results.values())
    return ("chunk", _us_chunk) if streams else ("request", _us_request)


def _ratio(ours: Results, other: Results, workload: str, pick: Pick) -> float | None:
    figure, base = ours.median(workload, pick), other.median(workload, pick)
    return figure / base if figure and base else None


def _added(one: Results, direct: Results, workload: str, pick: Pick) -> float | None:
    figure, base = one.median(workload, pick), direct.median(workload, pick)
    return None if figure is None or base is None else figure - base


def _gap_cell(one: Results, direct: Results) -> str:
    base, values = direct.median("W4", _gap_p99), one.values("W4", _gap_p99)
    if base is None or not values:
        return "–"
    median, low, high = ((value - base) / 1e3 for value in (statistics.median(values), min(values), max(values)))
    return f"{median:.2f} ({low:.2f}..{high:.2f})"


def _with_ratio(figure: float | None, base: float | None) -> str:
    if not figure:
        return "–"
    return f"{_number(figure, 1)} ({figure / base:.2f})" if base else _number(figure, 1)


def _number(value: float | None, digits: int) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _markdown(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    padded = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in rows]
    padded.insert(1, ["-" * width for width in widths])
    return "\n".join(f"| {' | '.join(row)} |" for row in padded)
