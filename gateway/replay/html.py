"""A study as one HTML page that needs nothing else: tables, and plots as inline SVG."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.resources import files
from math import log10

from jinja2 import Environment, StrictUndefined

from gateway.replay.report import Study

WIDTH, HEIGHT = 640, 260
LEFT, BOTTOM, TOP, RIGHT = 56, 28, 12, 12
# Okabe and Ito's palette: told apart by everybody.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000", "#f0e442")


@dataclass(frozen=True, slots=True)
class Line:
    """One policy's line in a plot."""

    name: str
    colour: str
    points: str  # SVG


@dataclass(frozen=True, slots=True)
class Tick:
    """A mark on an axis, in pixels."""

    at: float
    text: str


@dataclass(frozen=True, slots=True)
class Plot:
    """Lines over a grid."""

    title: str
    x_label: str
    lines: tuple[Line, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    width: int = WIDTH
    height: int = HEIGHT
    left: int = LEFT
    right: int = WIDTH - RIGHT
    top: int = TOP
    bottom: int = HEIGHT - BOTTOM


def render_html(study: Study) -> str:
    """The page."""
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    template = environment.from_string(files(__package__).joinpath("report.html").read_text("utf-8"))
    return template.render(study=study, plots=_plots(study), colours=COLOURS)


def _plots(study: Study) -> tuple[Plot, ...]:
    curves = [(result.policy, result.ttft_curve) for result in study.results]
    timelines = [(result.policy, result.ttft_timeline) for result in study.results]
    minutes = study.seconds / 60
    return (
        _plot("TTFT by percentile, s (log)", "percentile", curves, 100.0, _log_scale(curves)),
        _plot("p95 of TTFT over the trace, s (log)", "minutes", timelines, minutes, _log_scale(timelines)),
    )


Scale = tuple[Callable[[float], float], tuple[Tick, ...]]
Series = Sequence[tuple[str, Sequence[float]]]


def _log_scale(series: Series) -> Scale:
    """Decades that hold all positive values."""
    values = [value for _, points in series for value in points if value > 0]
    low, high = 0, 1
    while values and 10.0**low > min(values):
        low -= 1
    while values and 10.0**high < max(values):
        high += 1

    def place(value: float) -> float:
        share = (log10(max(value, 10.0**low)) - low) / (high - low)
        return HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP)

    return place, tuple(Tick(place(10.0**power), f"{10.0**power:g}") for power in range(low, high + 1))


def _plot(title: str, x_label: str, series: Series, x_end: float, scale: Scale) -> Plot:
    place, y_ticks = scale
    span = WIDTH - LEFT - RIGHT
    lines = []
    for number, (name, points) in enumerate(series):
        step = span / max(1, len(points) - 1)
        path = " ".join(f"{LEFT + step * at:.1f},{place(value):.1f}" for at, value in enumerate(points) if value > 0)
        lines.append(Line(name, COLOURS[number % len(COLOURS)], path))
    x_ticks = tuple(Tick(LEFT + span * share, f"{x_end * share:.3g}") for share in (0.0, 0.25, 0.5, 0.75, 1.0))
    return Plot(title, x_label, tuple(lines), x_ticks, y_ticks)
