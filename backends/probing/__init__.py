"""Finding out what a pool really can do: `probe_pool(target, client, clock=...)` gives a report with its contract."""

from __future__ import annotations

from backends.probing.client import AiohttpProbe, Answer, ProbeClient
from backends.probing.run import ProbeReport, Target, probe_pool, unprobed
from backends.probing.session import Budget, Check
from backends.probing.table import checks_table, contract_table

__all__ = [
    "AiohttpProbe",
    "Answer",
    "Budget",
    "Check",
    "ProbeClient",
    "ProbeReport",
    "Target",
    "checks_table",
    "contract_table",
    "probe_pool",
    "unprobed",
]
