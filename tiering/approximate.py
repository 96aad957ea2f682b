"""The index of pools that publish no events: made from our own routing decisions.

What was sent to a replica is cached there for a while. How much fits is the replica's advertised capacity; how long it
stays is learned from responses that reported less than was predicted. Every response corrects the entry.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from dataclasses import dataclass, field

import numpy as np

from backends.contracts import Clock
from tiering.chain import Chain
from tiering.events.decode import Removed, Stored
from tiering.index.prefix import PrefixIndex

_UNKNOWN_CAPACITY = 200_000  # tokens of a replica that does not say
_USABLE = 0.9  # of the capacity: running sequences take the rest
_SMALLEST_LIFE_S = 5.0
_WEIGHT = 0.2  # of the latest observation
_MAX_BLOCKS = 65_536  # per replica, however large it says it is


@dataclass(slots=True)
class _Replica:
    blocks: OrderedDict[int, tuple[int, float]] = field(default_factory=OrderedDict)  # key -> tokens, last sent at
    tokens: int = 0
    capacity: int = _UNKNOWN_CAPACITY
    life_s: float = math.inf
    confidence: float = 1.0


class ApproximateIndex:
    """Writes what it believes into the shared `PrefixIndex`, so that look-ups are the same as for exact pools."""

    __slots__ = ("_clock", "_index", "_replicas")

    def __init__(self, index: PrefixIndex, clock: Clock) -> None:
        self._index = index
        self._clock = clock
        self._replicas: dict[str, _Replica] = {}

    def set_capacity(self, replica: str, tokens: int) -> None:
        """The replica says how many tokens its cache holds; 0 says nothing."""
        if tokens > 0:
            state = self._replicas.setdefault(replica, _Replica())
            state.capacity = tokens
            self._drop(replica, self._over(state))

    def sent(self, replica: str, chain: Chain) -> None:
        """A prompt was sent: its blocks are in the cache soon, and the least recently used of others go."""
        state = self._replicas.setdefault(replica, _Replica())
        now = self._clock.monotonic()
        keys = chain.keys.tolist()
        lengths = np.diff(chain.ends).tolist()
        new = [key for key in keys if key not in state.blocks]
        # Deepest first: engines evict the end of a prompt before its beginning.
        for key, length in zip(reversed(keys), reversed(lengths), strict=True):
            old = state.blocks.pop(key, None)
            state.tokens += length - (old[0] if old else 0)
            state.blocks[key] = (length, now)
        if new:
            self._index.apply(replica, [Stored(new)])
        self._drop(replica, self._expired(state, now) + self._over(state))

    def expire(self) -> None:
        """Drop what has outlived its replica's usual life. Call every few seconds."""
        now = self._clock.monotonic()
        for replica, state in self._replicas.items():
            self._drop(replica, self._expired(state, now))

    def correct(self, replica: str, predicted: int, reported: int, age_s: float) -> None:
        """A response said how many tokens came from the cache; `age_s` is what `age` said before it was sent.

        The prompt itself is in the cache by now, whatever was there before; what is learned is how long things stay.
        """
        state = self._replicas.get(replica)
        if state is None or not predicted:
            return
        share = min(reported / predicted, 1.0)
        state.confidence += _WEIGHT * (share - state.confidence)
        if share < 0.5 and age_s > 0:
            target = max(age_s, _SMALLEST_LIFE_S)
            state.life_s = target if math.isinf(state.life_s) else state.life_s + _WEIGHT * (target - state.life_s)
        elif share > 0.9 and age_s > 0.8 * state.life_s:
            state.life_s *= 1.0 + _WEIGHT

    def age(self, replica: str, chain: Chain) -> float:
        """Seconds since the beginning of this prompt was last sent to the replica; 0 when it never was."""
        state = self._replicas.get(replica)
        if state is None or not len(chain.keys):
            return 0.0
        entry = state.blocks.get(int(chain.keys[0]))
        return self._clock.monotonic() - entry[1] if entry else 0.0

    def confidence(self, replica: str) -> float:
        """Share of the predicted tokens that responses confirm, 0..1."""
        state = self._replicas.get(replica)
        return state.confidence if state else 1.0

    def forget(self, replica: str) -> None:
        """The replica restarted or is gone."""
        self._replicas.pop(replica, None)
        self._index.forget(replica)

    def _over(self, state: _Replica) -> list[int]:
        gone: list[int] = []
        while state.blocks and (state.tokens > _USABLE * state.capacity or len(state.blocks) > _MAX_BLOCKS):
            gone.append(self._pop(state))
        return gone

    def _expired(self, state: _Replica, now: float) -> list[int]:
        gone: list[int] = []
        while state.blocks and now - next(iter(state.blocks.values()))[1] > state.life_s:
            gone.append(self._pop(state))
        return gone

    @staticmethod
    def _pop(state: _Replica) -> int:
        key, (length, _) = state.blocks.popitem(last=False)
        state.tokens -= length
        return key

    def _drop(self, replica: str, keys: list[int]) -> None:
        if keys:
            self._index.apply(replica, [Removed(keys)])
