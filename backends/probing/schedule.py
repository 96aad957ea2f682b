"""When a pool is probed: at registration, when its engine's version changed, and now and then when it is quiet."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Reason(enum.Enum):
    """Why a run is due."""

    REGISTERED = "registered"
    VERSION = "version changed"
    SCHEDULE = "schedule"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The pace of runs. A scheduled run waits while the pool is busy, but not longer than one more interval."""

    interval_s: float = 3600.0
    quiet_exchanges: int = 2  # in flight per replica; more is busy
    retry_s: float = 60.0  # after a run that did not come to its end


@dataclass(frozen=True, slots=True)
class LastRun:
    """The last run of a pool. `at_s` is monotonic."""

    at_s: float
    version: str
    complete: bool


def due(
    schedule: Schedule,
    last: LastRun | None,
    *,
    now_s: float,
    version: str,
    in_flight: float,
) -> Reason | None:
    """Whether to probe now and why. `in_flight` is per replica; an unknown `version` is the empty string."""
    if last is None:
        return Reason.REGISTERED
    age = now_s - last.at_s
    if version and version != last.version and age >= schedule.retry_s:
        return Reason.VERSION
    if not last.complete and age >= schedule.retry_s:
        return Reason.REGISTERED
    if age < schedule.interval_s:
        return None
    quiet = in_flight <= schedule.quiet_exchanges
    return Reason.SCHEDULE if quiet or age >= 2 * schedule.interval_s else None
