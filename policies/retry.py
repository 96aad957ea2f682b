"""Whether a failed attempt is followed by another."""

from __future__ import annotations

from backends.contracts import Clock, EngineFailure, Fault

_RESERVE_WINDOW_S = 10.0
_SAVED_LIMIT = 1_000.0  # retries saved up by a long healthy time


class RetryBudget:
    """Retries may be at most `ratio` of all exchanges, but `reserve` per ten seconds are always allowed.

    So a dead replica is covered, while a pool that fails as a whole does not get its load multiplied.
    """

    __slots__ = ("_clock", "_ratio", "_refilled_s", "_reserve", "_reserve_limit", "_saved")

    def __init__(self, clock: Clock, ratio: float, reserve: int) -> None:
        self._clock = clock
        self._ratio = ratio
        self._reserve_limit = self._reserve = float(reserve)
        self._refilled_s = clock.monotonic()
        self._saved = 0.0

    def exchange(self) -> None:
        """An exchange began."""
        self._saved = min(_SAVED_LIMIT, self._saved + self._ratio)

    def spend(self) -> bool:
        """Take one retry; False when there is none left."""
        now = self._clock.monotonic()
        refill = self._reserve_limit * (now - self._refilled_s) / _RESERVE_WINDOW_S
        self._reserve = min(self._reserve_limit, self._reserve + refill)
        self._refilled_s = now
        if self._saved >= 1.0:
            self._saved -= 1.0
        elif self._reserve >= 1.0:
            self._reserve -= 1.0
        else:
            return False
        return True


def may_retry(failure: EngineFailure, attempts: int, limit: int, budget: RetryBudget) -> str:
    """Why there is no further attempt after `attempts` of `limit`; "" when there may be one.

    A connection that was closed while idle costs neither an attempt nor budget: the request never arrived.
    """
    if failure.fault is Fault.CLIENT:
        return "the request itself is at fault"
    if failure.fault is Fault.STALE:
        return ""
    if attempts >= limit:
        return f"{attempts} attempts were made"
    return "" if budget.spend() else "the retry budget is spent"
