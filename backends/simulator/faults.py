"""Faults on demand: `name[=value][:probability]`, comma-separated, e.g. `reset_after=3:0.1,queue_full`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from backends.contracts import Random

# Faults and the value each takes when none is given; None means that the fault takes none.
FAULTS: Mapping[str, float | None] = {
    "refuse": None,  # the connection breaks before an answer; certain from the start: nothing listens
    "reset_after": 0.0,  # frames, then the connection is reset
    "stall_after": 0.0,  # frames, then silence
    "truncate_after": 0.0,  # frames, then a clean end without a finish reason
    "error_frame": 1.0,  # frames, then the engine's error frame
    "slow_first_byte": 1.0,  # seconds before the status line
    "queue_full": None,  # the engine's own refusal
    "bad_utf8": None,  # a frame with bytes that are not UTF-8
    "hang": None,  # the request is accepted and never answered
    "hang_health": None,  # health endpoints never answer
    "http_500": None,
    "garbage": None,  # bytes that are not HTTP
    "abort": 3.0,  # tokens, then the engine gives up on the answer
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault and how often it strikes."""

    name: str
    value: float = 0.0
    probability: float = 1.0


def parse_faults(spec: str) -> tuple[Fault, ...]:
    """Read a fault specification. Raises ValueError naming the part that is wrong."""
    return tuple(_parse(part.strip()) for part in spec.split(",") if part.strip())


def _parse(part: str) -> Fault:
    head, _, share = part.partition(":")
    name, _, value = head.partition("=")
    if name not in FAULTS:
        raise ValueError(f"unknown fault {name!r}; known: {', '.join(FAULTS)}")
    default = FAULTS[name]
    if value and default is None:
        raise ValueError(f"fault {name!r} takes no value")
    try:
        probability = float(share) if share else 1.0
        amount = float(value) if value else default or 0.0
    except ValueError:
        raise ValueError(f"not a number in fault {part!r}") from None
    if not 0.0 <= probability <= 1.0 or amount < 0.0:
        raise ValueError(f"out of range in fault {part!r}")
    return Fault(name, amount, probability)


class FaultPlan:
    """The faults of one server, changeable while it runs."""

    def __init__(self, spec: str, random: Random) -> None:
        self.active = parse_faults(spec)
        self._random = random

    def change(self, spec: str) -> None:
        """Replace all faults. Raises ValueError and keeps the old ones when `spec` is wrong."""
        self.active = parse_faults(spec)

    def strike(self, own: str | None) -> Fault | None:
        """The fault of one request, the first whose draw hits; `own` is the request's own specification."""
        for fault in self.active if own is None else parse_faults(own):
            if fault.name != "hang_health" and self._random.random() < fault.probability:
                return fault
        return None

    def certain(self, name: str) -> bool:
        """Whether a fault is active and strikes always."""
        return any(fault.name == name and fault.probability >= 1 for fault in self.active)
