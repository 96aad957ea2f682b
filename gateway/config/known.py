"""Names that plug-ins answer to, for the checks."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from backends.engines import builtin
from policies.routing.builtin import builtin_policies


@dataclass(frozen=True, slots=True)
class Known:
    """An empty collection means: not checked."""

    engines: Collection[str] = ()
    routing: Collection[str] = ()


def installed() -> Known:
    """What this installation offers."""
    return Known(engines=tuple(builtin()), routing=tuple(builtin_policies()))
