"""The index of pools that publish no events: made from our own routing decisions.

What was sent to a replica is cached there for a while. How much fits is the replica's advertised capacity; how long it
stays is learned from responses that reported less than was predicted. Every response corrects the entry.

A prompt has few blocks here, each of kilobytes of text, so plain dicts are quicker than the arrays of `PrefixIndex`:
any change of those costs a few hundred microseconds, however small it is.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from backends.contracts import TIERS, Clock, Replica
from tiering.chain import Chain
from tiering.index.memory import I64

_UNKNOWN_CAPACITY = 200_000  # tokens of a replica that does not say
_USABLE = 0.9  # of the capacity: running sequences take the rest
_SMALLEST_LIFE_S = 5.0
_WEIGHT = 0.2  # of the latest observation
_MAX_BLOCKS = 8192  # per replica, however large it says it is
_MAX_ENTRIES = 1_000_000  # of all replicas together


@dataclass(slots=True)
class _Replica:
    bit: int
    # key -> tokens, last sent at, whether an exchange that sent it was answered
    blocks: OrderedDict[int, tuple[int, float, bool]] = field(default_factory=OrderedDict)
    tokens: int = 0
    capacity: int = _UNKNOWN_CAPACITY
    life_s: float = math.inf
    confidence: float = 1.0


class ApproximateIndex:
    """What is believed of replicas without events."""

    __slots__ = ("_clock", "_entries", "_owners", "_replicas")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._replicas: dict[str, _Replica] = {}
        self._owners: dict[int, int] = {}  # key -> bits of the replicas that have the block
        self._entries = 0  # blocks of all replicas

    def set_capacity(self, replica: str, tokens: int) -> None:
        """The replica says how many tokens its cache holds; 0 says nothing."""
        state = self._state(replica)
        if tokens > 0 and tokens != state.capacity:
            state.capacity = tokens
            self._fit(state)

    def sent(self, replica: str, chain: Chain) -> None:
        """A prompt was sent: its blocks are in the cache soon, and the least recently used of others go."""
        state, now = self._state(replica), self._clock.monotonic()
        # Deepest first: engines evict the end of a prompt before its beginning.
        for key, length in zip(chain.keys.tolist()[::-1], np.diff(chain.ends).tolist()[::-1], strict=True):
            old = state.blocks.pop(key, None)
            state.blocks[key] = (length, now, old is not None and old[2])
            if old is None:
                state.tokens += length
                self._entries += 1
                self._owners[key] = self._owners.get(key, 0) | state.bit
            else:
                state.tokens += length - old[0]
        self._age_out(state, now)
        self._fit(state)

    def locate(self, chain: Chain, replicas: Sequence[Replica], rows: int) -> I64:
        """Longest prefix, in tokens, that each of `replicas` is believed to have on its GPU: (len(TIERS), rows)."""
        depths = self._depths(chain.keys.tolist())
        reach = np.zeros((len(TIERS), rows), np.int64)
        for replica in replicas if depths else ():
            state = self._replicas.get(replica.id)
            if state is not None and state.bit in depths:
                reach[:, replica.row] = chain.ends[depths[state.bit]]
        return reach

    def expire(self) -> None:
        """Drop what has outlived its replica's usual life. Call every few seconds."""
        now = self._clock.monotonic()
        for state in self._replicas.values():
            self._age_out(state, now)

    def correct(self, replica: str, chain: Chain, predicted: int, reported: int, age_s: float | None) -> None:
        """A response said how many tokens came from the cache; `age_s` is what `age` said before it was sent.

        The prompt itself is in the cache by now, whatever was there before; what is learned is how long things stay.
        A prediction of blocks that were still being computed teaches nothing of that.
        """
        state = self._replicas.get(replica)
        if state is None:
            return
        for key in chain.keys.tolist():
            block = state.blocks.get(key)
            if block is not None and not block[2]:
                state.blocks[key] = (block[0], block[1], True)
        if not predicted or age_s is None:
            return
        share = min(reported / predicted, 1.0)
        state.confidence += _WEIGHT * (share - state.confidence)
        if share < 0.5:
            target = max(age_s, _SMALLEST_LIFE_S)
            state.life_s = target if math.isinf(state.life_s) else state.life_s + _WEIGHT * (target - state.life_s)
        elif share > 0.9 and age_s > 0.8 * state.life_s:
            state.life_s *= 1.0 + _WEIGHT

    def age(self, replica: str, chain: Chain) -> float | None:
        """Seconds since the beginning of this prompt was last sent to the replica.

        None when it never was, or when some of what is believed to be there is under way for the first time.
        """
        state = self._replicas.get(replica)
        if state is None:
            return None
        since: float | None = None
        for key in chain.keys.tolist():
            block = state.blocks.get(key)
            if block is None:
                break
            if not block[2]:
                return None
            since = block[1] if since is None else since
        return None if since is None else self._clock.monotonic() - since

    def confidence(self, replica: str) -> float:
        """Share of the predicted tokens that responses confirm, 0..1."""
        state = self._replicas.get(replica)
        return state.confidence if state else 1.0

    def forget(self, replica: str) -> None:
        """The replica's process has ended, or the replica has left."""
        state = self._replicas.pop(replica, None)
        while state is not None and state.blocks:
            self._pop(state)

    def _state(self, replica: str) -> _Replica:
        state = self._replicas.get(replica)
        if state is None:
            taken = 0
            for other in self._replicas.values():
                taken |= other.bit
            state = self._replicas[replica] = _Replica(~taken & (taken + 1))  # the lowest bit that is free
        return state

    def _depths(self, keys: list[int]) -> dict[int, int]:
        """Leading blocks that are there, by the bit of each replica that has the first."""
        depths: dict[int, int] = {}
        alive = self._owners.get(keys[0], 0) if keys else 0
        for depth in range(1, len(keys) + 1):
            if not alive:
                break
            left = alive & self._owners.get(keys[depth], 0) if depth < len(keys) else 0
            gone = alive & ~left
            while gone:
                bit = gone & -gone
                depths[bit] = depth
                gone ^= bit
            alive = left
        return depths

    def _fit(self, state: _Replica) -> None:
        while state.blocks and (
            state.tokens > _USABLE * state.capacity or len(state.blocks) > _MAX_BLOCKS or self._entries > _MAX_ENTRIES
        ):
            self._pop(state)

    def _age_out(self, state: _Replica, now: float) -> None:
        while state.blocks and now - next(iter(state.blocks.values()))[1] > state.life_s:
            self._pop(state)

    def _pop(self, state: _Replica) -> None:
        key, (length, _, _) = state.blocks.popitem(last=False)
        state.tokens -= length
        self._entries -= 1
        left = self._owners[key] & ~state.bit
        if left:
            self._owners[key] = left
        else:
            del self._owners[key]
