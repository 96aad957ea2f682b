"""`headrace top`: a running gateway at a glance."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.client import DEFAULT_ADMIN, AdminClient, AdminOption
from gateway.cli.output import JsonOption, UserError, console, print_json
from gateway.cli.pools import replica_row

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

# What is shown: name of the counter, and the value of its `kind` label when only one kind counts.
_COUNTERS = {
    "exchanges": ("headrace_exchanges_total", None),
    "retries": ("headrace_retries_total", None),
    "prompt tokens": ("headrace_tokens_total", "prompt"),
    "output tokens": ("headrace_tokens_total", "completion"),
}
_RECENT = 12


@dataclass(frozen=True, slots=True)
class Sample:
    """What the admin port said at one moment."""

    at_s: float
    pools: list[dict[str, Any]]
    replicas: list[dict[str, Any]]
    recent: list[dict[str, Any]]
    in_flight: int
    counters: dict[str, float]

    def rates(self, before: Sample | None) -> dict[str, float]:
        """Counters per second since an earlier sample; a counter that fell was reset by a restart and counts as 0."""
        if before is None or self.at_s <= before.at_s:
            return {}
        passed_s = self.at_s - before.at_s
        return {
            name: max(value - before.counters.get(name, 0.0), 0.0) / passed_s for name, value in self.counters.items()
        }


def top(
    admin: AdminOption = DEFAULT_ADMIN,
    interval_s: Annotated[float, typer.Option("--interval", min=0.2, help="Seconds between updates.")] = 1.0,
    as_json: JsonOption = False,
) -> None:
    """Show pools, replicas and recent exchanges of a running gateway, live. With --json: once, then exit."""
    client = AdminClient(admin, os.environ)
    first = take(client, time.monotonic())
    if as_json:
        print_json({"pools": first.pools, "replicas": first.replicas, "recent": first.recent, **first.counters})
        return
    from rich.live import Live

    screen = console()
    if not screen.is_terminal:
        screen.print(render(first, {}))
        return
    with Live(render(first, {}), console=screen, screen=True, auto_refresh=False) as live:
        try:
            _follow(client, first, live.update, interval_s)
        except KeyboardInterrupt:
            return


def _follow(client: AdminClient, sample: Sample, show: Any, interval_s: float) -> None:
    """Update until interrupted. A gateway that stops answering ends it with a UserError."""
    while True:
        time.sleep(interval_s)
        before, sample = sample, take(client, time.monotonic())
        show(render(sample, sample.rates(before)), refresh=True)


def take(client: AdminClient, now_s: float) -> Sample:
    """Ask the gateway."""
    exchanges = client.json(f"/admin/v1/exchanges?limit={_RECENT}")
    return Sample(
        at_s=now_s,
        pools=client.rows("pools"),
        replicas=client.rows("replicas"),
        recent=exchanges["recent"],
        in_flight=len(exchanges["in_flight"]),
        counters=totals(client.text("/metrics")),
    )


def totals(metrics: str) -> dict[str, float]:
    """Counters of a metrics page by the name they are shown under. Raises UserError for a page of something else."""
    from prometheus_client.parser import text_string_to_metric_families

    sums = dict.fromkeys(_COUNTERS, 0.0)
    try:
        for family in text_string_to_metric_families(metrics):
            for sample in family.samples:
                for shown, (name, kind) in _COUNTERS.items():
                    if sample.name == name and kind in (None, sample.labels.get("kind")):
                        sums[shown] += sample.value
    except ValueError:
        raise UserError("/metrics is not in the text format of Prometheus") from None
    return sums


def render(sample: Sample, rates: dict[str, float]) -> RenderableType:
    """One screen."""
    from rich.console import Group

    line = "   ".join(f"{name}/s {rate:.1f}" for name, rate in rates.items())
    return Group(f"in flight {sample.in_flight}   {line}", _replicas(sample), _exchanges(sample))


def _replicas(sample: Sample) -> Table:
    columns = ("replica", "url", "state", "version", "in flight", "running", "waiting", "kv used", "reason")
    return _table("replicas", columns, [replica_row(replica) for replica in sample.replicas])


def _exchanges(sample: Sample) -> Table:
    columns = ("request", "tenant", "model", "status", "replica", "ttft ms", "ms", "prompt", "cached", "out")
    keys = ("ttft_ms", "duration_ms", "prompt_tokens", "cached_tokens", "completion_tokens")
    rows = [
        (e["request_id"], e["tenant"], e["model"], e["status"], " > ".join(e["replicas"]), *(e[key] for key in keys))
        for e in sample.recent
    ]
    return _table("recent exchanges", columns, rows)


def _table(title: str, columns: tuple[str, ...], rows: list[tuple[object, ...]]) -> Table:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, expand=True)
    for column in columns:
        table.add_column(column)
    for row in rows:
        table.add_row(*(Text("-" if cell is None else str(cell)) for cell in row))
    return table
