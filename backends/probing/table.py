"""A contract as people read it: a table of terms with source and evidence."""

from __future__ import annotations

from datetime import UTC, datetime

from rich.table import Table

from backends.contract import TERMS, PoolContract, show
from backends.probing.run import ProbeReport


def contract_table(contract: PoolContract) -> Table:
    """One row per known term; a term that contradicts its declaration shows both values."""
    differs = {entry.term: entry for entry in contract.contradictions}
    title = f"{contract.pool} ({contract.engine})" + (", held out" if contract.held else "")
    table = Table("term", "value", "source", "evidence", title=title, title_justify="left")
    for term in TERMS:
        fact = contract.facts.get(term)
        if fact is None:
            continue
        value, style = show(fact.value), ""
        if term in differs:
            style = "bold red"
            value = f"{value} (declared {show(differs[term].declared)}, probed {show(differs[term].probed)})"
        when = f", {datetime.fromtimestamp(fact.at_s, UTC):%Y-%m-%d %H:%M:%SZ}" if fact.at_s else ""
        table.add_row(term, value, fact.source.value + when, fact.evidence, style=style)
    return table


def checks_table(report: ProbeReport) -> Table:
    """One row per golden probe."""
    words = {True: "passed", False: "failed", None: "showed nothing"}
    title = f"golden probes: {report.requests} requests, {report.tokens} tokens"
    title += "" if report.complete else ", not complete"
    table = Table("probe", "result", "evidence", title=title, title_justify="left")
    for check in report.checks:
        table.add_row(check.name, words[check.passed], check.evidence, style="red" if check.passed is False else "")
    return table
