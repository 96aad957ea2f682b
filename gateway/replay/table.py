"""A study as tables for a terminal."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.table import Table

from gateway.replay.report import Result, Study


def render_table(study: Study) -> RenderableType:
    """One line per policy; below it one per policy and tenant when the trace has tenants."""
    parts: list[RenderableType] = [_policies(study)]
    if any(tenant for result in study.results for tenant in result.by_tenant):
        parts.append(_tenants(study))
    return Group(*parts)


def _policies(study: Study) -> Table:
    title = f"{study.trace}: {study.exchanges:,} exchanges in {study.seconds:,.0f} s of virtual time"
    table = Table(title=title, title_justify="left")
    table.add_column("policy")
    for name in (
        "TTFT mean s",
        "p50",
        "p95",
        "p99",
        "E2E p50 s",
        "p95",
        "hit gpu",
        "host",
        "fs",
        "GPU-s",
        "moved",
        f"> {study.slo_ttft_s:g} s",
        "refused",
    ):
        table.add_column(name, justify="right")
    for result in study.results:
        table.add_row(*_line(result))
    return table


def _line(result: Result) -> tuple[str, ...]:
    ttft, e2e, hits = result.ttft, result.e2e, result.hits
    return (
        result.policy,
        *(f"{value:.3f}" for value in (ttft.mean, ttft.p50, ttft.p95, ttft.p99)),
        *(f"{value:.2f}" for value in (e2e.p50, e2e.p95)),
        *(f"{share:.1%}" for share in (hits.gpu, hits.host, hits.fs)),
        f"{result.gpu_seconds:,.0f}",
        f"{result.moved:.0%}",
        f"{result.slo_misses:,}",
        f"{result.refused:,}",
    )


def _tenants(study: Study) -> Table:
    table = Table(title="by tenant", title_justify="left")
    table.add_column("tenant")
    table.add_column("policy")
    for name in ("exchanges", "TTFT p50 s", "p95", "hit", f"> {study.slo_ttft_s:g} s"):
        table.add_column(name, justify="right")
    tenants = sorted({tenant for result in study.results for tenant in result.by_tenant})
    for tenant in tenants:
        for result in study.results:
            part = result.by_tenant.get(tenant)
            if part is not None:
                table.add_row(
                    tenant or "-",
                    result.policy,
                    f"{part.exchanges:,}",
                    f"{part.ttft.p50:.3f}",
                    f"{part.ttft.p95:.3f}",
                    f"{part.hits.total:.1%}",
                    f"{part.slo_misses:,}",
                )
    return table
