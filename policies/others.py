"""What others have under way on each replica, from engines' late and partial reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from backends.contracts import Load
from policies.cost_model.columns import Floats

REPORT_HALF_LIFE_S: Final = 3.0  # what an engine said of others is worth half after so long
TYPICAL_PROMPT: Final = 2000.0  # tokens of a waiting request when the engine reports only a number of requests


@dataclass(slots=True)
class Others:
    """Work of others by row, as last heard. Shapes (rows,). Owned by one `FleetColumns`."""

    exchanges: Floats
    prefill_tokens: Floats
    context_tokens: Floats
    at_s: Floats  # when the engine said so; 0: never

    @classmethod
    def nothing(cls, rows: int) -> Others:
        """No word from anybody."""
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(rows))

    def hear(self, row: int, load: Load, own_exchanges: int, own_prefill_tokens: int, own_context_tokens: int) -> None:
        """An engine reported. What we have there ourselves at that moment is not somebody else's."""
        total = load.running + load.waiting
        others = max(0, total - own_exchanges)
        if load.waiting_uncached_tokens:
            waiting = max(0, load.waiting_uncached_tokens - own_prefill_tokens)
        else:
            waiting = int(others * TYPICAL_PROMPT * load.waiting / total) if total else 0
        context = max(0, int(load.kv_used * load.kv_capacity_tokens) - own_context_tokens)
        self.exchanges[row] = others
        self.prefill_tokens[row] = waiting
        self.context_tokens[row] = context if others else 0
        self.at_s[row] = load.at_s

    def trust(self, now_s: float) -> Floats:
        """How much of each report still holds, 0..1 by age."""
        return np.exp2((self.at_s - now_s) / REPORT_HALF_LIFE_S)
