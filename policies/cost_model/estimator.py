"""Many small Kalman filters side by side: per replica, how far its real times are from its prior, term by term."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

NOISE: Final = 0.12  # relative error of one observation that the model explains well
DRIFT: Final = 0.015  # how far a multiplier may wander between two observations
OUTLIER: Final = 3.0  # errors above this many times the noise count only as much as one of this size ...
CHANGED: Final = 3  # ... unless so many in a row point the same way: then the replica itself has changed
RESTART_VARIANCE: Final = 1.0
LOWEST: Final = 0.05
HIGHEST: Final = 40.0
HABIT_PACE: Final = 0.01


class Multipliers:
    """`weights[row] . terms` is the expected time, where `terms` are the milliseconds that the prior gives to each.

    Robust: an outlier moves little, a run of them moves fast. Every multiplier stays within LOWEST..HIGHEST.
    """

    __slots__ = ("_drift", "_run", "_spread", "_variance", "error", "habit", "seen", "weights")

    def __init__(self, rows: int, spread: tuple[float, ...]) -> None:
        """`spread` is how wrong each term's prior may be (standard deviation of its multiplier, around 1)."""
        self._spread = np.diag(np.square(np.array(spread)))  # as a covariance
        self._drift = DRIFT * DRIFT * np.minimum(1.0, self._spread)
        width = len(spread)
        self.weights: Floats = np.ones((rows, width))
        self.habit: Floats = np.ones((rows, width))  # slow mean of `weights`: what is normal for the replica
        self._variance: Floats = np.zeros((rows, width, width))
        self._variance[:] = self._spread
        self._run = np.zeros(rows, dtype=np.int64)
        self.error: Floats = np.zeros(rows)  # moving mean of |observed - expected| / observed
        self.seen = np.zeros(rows, dtype=np.int64)

    def observe(self, row: int, terms: Floats, observed_ms: float, *, doubt: float = 0.0, whole: bool = True) -> float:
        """Learn from one observation; returns what was expected. `doubt` >= 0 widens its noise.

        Not `whole`: it is of some terms alone, or they are guessed, so it says nothing of how well a replica is known
        or whether it changed.
        """
        weights = self.weights[row]
        expected = float(weights.dot(terms))
        scale = max(expected, observed_ms, 1e-6)
        x = terms / scale
        miss = (observed_ms - expected) / scale
        noise = NOISE * (1.0 + doubt)
        changed = False
        if whole:
            self._note(row, abs(observed_ms - expected) / max(observed_ms, 1e-6))
            changed = self._is_change(row, miss, 2.0 * noise)
        variance = self._variance[row]
        if changed:
            variance += RESTART_VARIANCE * self._spread
        if not changed and abs(miss) > OUTLIER * noise:
            noise *= abs(miss) / (OUTLIER * noise)
        gain = variance.dot(x)
        gain /= noise * noise + float(x.dot(gain))
        variance -= gain[:, None] * x.dot(variance)
        variance += self._drift
        np.minimum(np.maximum(weights + gain * miss, LOWEST), HIGHEST, out=weights)
        habit = self.habit[row]
        habit += max(HABIT_PACE, 1.0 / max(1.0, float(self.seen[row]))) * (weights - habit)
        return expected

    def relax(self, rows: NDArray[np.bool_], towards: Floats, share: float) -> None:
        """Forget `share` of what sets some rows apart from `towards`: nobody asked them for a while."""
        self.weights[rows] += share * (towards[rows] - self.weights[rows])
        self._variance[rows] += share * self._spread

    def take(self, source: Multipliers, rows: list[int], start: Floats) -> None:
        """Fill row i from `source`'s row `rows[i]`, or with `start[i]` where that is -1."""
        old = np.array(rows, dtype=np.int64)
        known = old >= 0
        self.weights[:] = self.habit[:] = start
        for mine, theirs in (
            (self.weights, source.weights),
            (self.habit, source.habit),
            (self._variance, source._variance),
            (self._run, source._run),
            (self.error, source.error),
            (self.seen, source.seen),
        ):
            mine[known] = theirs[old[known]]

    def _note(self, row: int, relative: float) -> None:
        self.seen[row] = seen = self.seen.item(row) + 1
        error = self.error.item(row)
        self.error[row] = error + max(0.05, 1.0 / seen) * (relative - error)

    def _is_change(self, row: int, miss: float, threshold: float) -> bool:
        sign = 0 if abs(miss) <= threshold else 1 if miss > 0 else -1
        run = int(self._run[row])
        self._run[row] = run = run + sign if sign * run >= 0 and sign else sign
        return abs(run) >= CHANGED
