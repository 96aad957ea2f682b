"""What engines count of themselves and no client can time: draft tokens kept, and copies out of the lower tiers."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Final

ENOUGH_DRAFTS: Final = 16  # between two looks, before their mean says something
MOST_PER_STEP: Final = 64.0  # tokens; no engine drafts so many


@dataclass(frozen=True, slots=True)
class Copies:
    """Copies of KV out of one lower tier, in totals since the engine started. What an engine does not count stays 0.

    The copying alone is timed, not what a restore waits for before and after it.
    """

    count: float = 0.0
    tokens: float = 0.0
    bytes: float = 0.0  # of as many ranks as `seconds`
    seconds: float = 0.0
    rates: float = 0.0  # the bytes per second of every copy, of one rank, added up

    def minus(self, before: Copies) -> Copies:
        """What was copied since `before`."""
        return Copies(*(mine - theirs for mine, theirs in zip(_values(self), _values(before), strict=True)))


@dataclass(frozen=True, slots=True)
class Counters:
    """One look at an engine's counters, or the difference of two."""

    generated: float = 0.0  # output tokens
    drafts: float = 0.0  # decode steps of one stream each that had draft tokens to verify
    accepted: float = 0.0  # draft tokens kept
    per_step: float = 0.0  # tokens per step and stream as the engine itself last put it; a gauge; 0.0: it does not
    host: Copies = Copies()  # from host memory to the GPU
    fs: Copies = Copies()  # from files to host memory

    def since(self, before: Counters) -> Counters | None:
        """What was counted after `before`; None when a counter went back, as when the engine has started again."""
        gone = Counters(
            self.generated - before.generated,
            self.drafts - before.drafts,
            self.accepted - before.accepted,
            self.per_step,
            self.host.minus(before.host),
            self.fs.minus(before.fs),
        )
        counted = (gone.generated, gone.drafts, gone.accepted, *_values(gone.host), *_values(gone.fs))
        return gone if min(counted) >= 0.0 else None

    def tokens_per_step(self) -> float:
        """Of a difference: tokens that one decode step gave each stream; 0.0 when too little was counted to tell."""
        if self.drafts >= ENOUGH_DRAFTS:
            per_step = 1.0 + self.accepted / self.drafts
        else:
            per_step = self.per_step if self.generated > 0.0 else 0.0
        return per_step if 1.0 <= per_step <= MOST_PER_STEP else 0.0


def _values(copies: Copies) -> Iterable[float]:
    return [getattr(copies, name) for name in _COPIES]


_COPIES: Final = tuple(field.name for field in fields(Copies))
