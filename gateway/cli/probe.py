"""`headrace pools probe`: what a pool really can do, found out now, without a gateway."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gateway.cli.output import ConfigOption, JsonOption, UserError, console, print_json
from gateway.cli.pools import PoolArgument
from gateway.config.problems import nearest

if TYPE_CHECKING:
    from backends.probing import ProbeReport
    from gateway.config.model import Pool
    from policies.compatibility import Finding


def probe(
    pool: PoolArgument,
    config: ConfigOption,
    replica: Annotated[int, typer.Option(min=0, help="Which replica, counted from 0.")] = 0,
    golden: Annotated[bool, typer.Option(help="Send tiny generations; without, only ask for facts.")] = True,
    as_json: JsonOption = False,
) -> None:
    """Probe one replica of a pool and print its contract, with the source of each value, and where the facts of the
    other replicas differ. Status 1: it does not answer, or a probe contradicts what the configuration declares.
    """
    import asyncio

    from gateway.config.known import installed
    from gateway.config.loader import load

    pools = {entry.name: entry for entry in load(config, installed()).config.pools}
    if pool not in pools:
        raise UserError(f"{config.name}: there is no pool {pool!r}: {nearest(pool, pools)}")
    if replica >= len(pools[pool].replicas):
        raise UserError(f"--replica: pool {pool!r} has {len(pools[pool].replicas)}", code=2)
    if sys.stderr.isatty():
        typer.echo(f"probing {pools[pool].replicas[replica]} ...", err=True)
    report, findings = asyncio.run(_probe(pools[pool], replica, golden=golden))
    if as_json:
        told = [{"severity": found.severity, "term": found.term, "message": found.message} for found in findings]
        print_json({**_plain(report), "findings": told})
    else:
        _print(report)
        for finding in findings:
            typer.echo(f"warning: {finding.message}", err=True)
    if not report.complete or report.incidents:
        raise typer.Exit(1)


async def _probe(pool: Pool, replica: int, *, golden: bool) -> tuple[ProbeReport, tuple[Finding, ...]]:
    """The report of one replica, and what does not fit in it or between it and the others, which are only asked for
    facts.
    """
    import asyncio

    import aiohttp

    from backends.engines import builtin
    from backends.probing import AiohttpProbe, probe_pool
    from deploy.recipes import Catalogue
    from gateway.clock import SystemClock
    from gateway.contracts import target
    from policies.compatibility import check_pool, check_replicas

    aim = target(pool, builtin(), Catalogue.read())
    key = pool.api_key.get_secret_value() if pool.api_key else None
    async with aiohttp.ClientSession(trust_env=False) as session:

        async def ask(url: str, *, golden: bool) -> ProbeReport:
            client = AiohttpProbe(session, url, api_key=key)
            return await probe_pool(aim, client, clock=SystemClock(), golden=golden)

        report = await ask(pool.replicas[replica], golden=golden)
        others = [url for place, url in enumerate(pool.replicas) if place != replica]
        peers = await asyncio.gather(*(ask(url, golden=False) for url in others))
    same = [report.contract, *(peer.contract for peer in peers if peer.complete)]
    return report, (*check_pool(report.contract), *check_replicas(same))


def _print(report: ProbeReport) -> None:
    from backends.probing.table import checks_table, contract_table

    screen = console()
    screen.print(contract_table(report.contract))
    if report.checks:
        screen.print(checks_table(report))


def _plain(report: ProbeReport) -> dict[str, Any]:
    facts = report.contract.facts
    return {
        "pool": report.contract.pool,
        "engine": report.contract.engine,
        "complete": report.complete,
        "held": report.contract.held,
        "terms": {
            term: {"value": _json(fact.value), "source": fact.source.value, "evidence": fact.evidence}
            for term, fact in facts.items()
        },
        "contradictions": [
            {"term": entry.term, "declared": _json(entry.declared), "probed": _json(entry.probed)}
            for entry in report.incidents
        ],
        "checks": [{"name": check.name, "passed": check.passed, "evidence": check.evidence} for check in report.checks],
        "requests": report.requests,
        "tokens": report.tokens,
    }


def _json(value: Any) -> Any:
    return sorted(value) if isinstance(value, set | frozenset) else value
