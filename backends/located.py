"""Where the KV blocks of one prompt lie, for every replica of a snapshot at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from backends.contracts import TIERS


@dataclass(frozen=True, slots=True)
class Located:
    """What the prefix index found for one prompt, in columns aligned with the rows of the snapshot's `LoadTable`.

    `reach[t, row]` is the longest usable prefix, in tokens, when the tiers `TIERS[0..t]` may be read: so it never
    falls with `t`, and its differences are what each tier holds alone. "Usable" means that the engine can resume
    there (whole blocks; for hybrid models a recurrent checkpoint). Boundaries inside one tier need not be listed:
    restore time is linear in tokens and prefill time grows with the square, so the best one is always an end.
    """

    reach: NDArray[np.int64]  # shape (len(TIERS), rows)
    confidence: NDArray[np.float64] | None = None  # (rows,), 0..1: how sure the index is; None: quite sure
    dp_rank: NDArray[np.int64] | None = None  # (rows,), rank with the longest match, -1: no preference

    @classmethod
    def nothing(cls, rows: int) -> Located:
        """A prompt that no replica has seen."""
        return cls(np.zeros((len(TIERS), rows), dtype=np.int64))

    @classmethod
    def of_tiers(cls, held: NDArray[np.int64]) -> Located:
        """From tokens matched per tier on its own, shape (len(TIERS), rows): a longer match covers a shorter one."""
        return cls(np.maximum.accumulate(held, axis=0))
