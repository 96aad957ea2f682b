"""A clock that a test moves."""

from __future__ import annotations


class ManualClock:
    """Monotonic and wall time that stand still until `advance`."""

    def __init__(self, now_s: float = 1_000.0) -> None:
        self.now_s = now_s

    def monotonic(self) -> float:
        """Seconds from an arbitrary origin."""
        return self.now_s

    def time(self) -> float:
        """Seconds since the epoch."""
        return 1_700_000_000.0 + self.now_s

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds
