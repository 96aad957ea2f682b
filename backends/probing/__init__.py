"""Finding out what a pool really can do: `probe_pool(target, client, clock=...)` gives a report with its contract.

The tables that people read (`table`) are for the command line alone: they need a library that a gateway need not load.
"""

from __future__ import annotations

from backends.probing.client import AiohttpProbe, Answer, ProbeClient
from backends.probing.run import ProbeReport, Target, probe_pool, unprobed
from backends.probing.session import Budget, Check

__all__ = [
    "AiohttpProbe",
    "Answer",
    "Budget",
    "Check",
    "ProbeClient",
    "ProbeReport",
    "Target",
    "probe_pool",
    "unprobed",
]
