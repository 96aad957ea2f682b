"""Do our hashes equal the engine's? Checked on the events that pass by, all the time.

Every published block with tokens whose parent is known can be computed again. The share that comes out equal is the
pool's `hash_match_ratio`; below the floor the pool is routed by its text chain instead. The beginnings of prompts are
kept too: whether the engine saw our prompt under another hash, another salt, or never, tells why a prediction failed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tiering.events.decode import KvEvent, Stored
from tiering.hashing.scheme import Extras, Scheme, Tokens
from tiering.memo import BoundedMemo

FLOOR = 0.98
_WINDOW = 512  # blocks that the ratio looks back on
_ENOUGH = 8  # blocks before the ratio says anything
_PER_EVENT = 8  # blocks computed again of one event: a long prompt is no better evidence than a short one
_SALTS = 16  # remembered of one beginning
_CHECKED_KINDS = frozenset({"", "full_attention", "mla_attention", "sink_full_attention"})


@dataclass(frozen=True, slots=True)
class GroupSeen:
    """A cache group as events describe it. `window` is in tokens, 0 for groups without."""

    kind: str
    window: int = 0


class HashCheck:
    """Compares one pool's scheme with its engines' events."""

    __slots__ = ("_digests", "_recent", "_roots", "_samples", "_scheme", "block_size", "groups")

    def __init__(self, scheme: Scheme, *, memo: int = 16_384) -> None:
        self._scheme = scheme
        self._digests: BoundedMemo[int, bytes] = BoundedMemo(memo)
        self._roots: BoundedMemo[bytes, dict[str | None, int]] = BoundedMemo(memo)
        self._recent: deque[bool] = deque(maxlen=_WINDOW)
        self._samples: deque[tuple[int, ...]] = deque(maxlen=16)
        self.block_size = 0  # as events say it; 0: not heard yet
        self.groups: dict[int, GroupSeen] = {}

    def see(self, events: Iterable[KvEvent]) -> None:
        """Look at events of one of the pool's replicas."""
        for event in events:
            if isinstance(event, Stored):
                self._see(event)

    @property
    def ratio(self) -> float | None:
        """Share of equal hashes among the last blocks; None until there is enough evidence."""
        return sum(self._recent) / len(self._recent) if len(self._recent) >= _ENOUGH else None

    @property
    def trusted(self) -> bool:
        """Whether the scheme may be used: no evidence against it."""
        ratio = self.ratio
        wrong_size = self.block_size not in {0, self._scheme.block}
        return not wrong_size and (ratio is None or ratio >= FLOOR)

    def roots(self, tokens: Tokens) -> Mapping[str | None, int]:
        """Hashes by salt under which the first block of `tokens` (n,) was published as the beginning of a prompt."""
        return self._roots.get(_first(tokens, self._scheme.block)) or {}

    @property
    def prompts(self) -> Sequence[tuple[int, ...]]:
        """Beginnings of recent prompts, as token ids."""
        return tuple(self._samples)

    def _see(self, event: Stored) -> None:
        if event.kind and len(self.groups) < 64:
            self.groups.setdefault(event.group, GroupSeen(event.kind, event.window))
        if not event.tokens or not event.hashes or event.kind not in _CHECKED_KINDS:
            return
        self.block_size = event.block_size or self.block_size
        if isinstance(event.tokens[0], int) and (event.parent is None or event.parent in self._digests):
            try:
                tokens = np.array(event.tokens[: _PER_EVENT * self._scheme.block], np.uint32)
            except (OverflowError, TypeError, ValueError):
                return  # what are no ids prove nothing
            self._compare(event, tokens)

    def _compare(self, event: Stored, tokens: Tokens) -> None:
        scheme, extras = self._scheme, extras_of(event)
        if extras is None:
            return
        if event.parent is None:
            digests = scheme.digests(tokens, extras)
            self._samples.append(tuple(event.tokens))
            self._remember(tokens, extras.salt, event.hashes[0] % (1 << 64))
        else:
            parent = self._digests.get(event.parent)
            if parent is None:
                return
            # Digests of earlier blocks are known, so any tokens may stand for them.
            padded = np.concatenate((np.zeros(scheme.block, np.uint32), tokens))
            digests = scheme.digests(padded, extras, [parent])[1:]
        computed = scheme.hashes(digests).tolist() if digests else []
        for hash_, digest, mine in zip(event.hashes, digests, computed, strict=False):
            self._recent.append(hash_ % (1 << 64) == mine)
            self._digests.put(hash_, digest, 1)

    def _remember(self, tokens: Tokens, salt: str | None, hash_: int) -> None:
        first = _first(tokens, self._scheme.block)
        salts = {**(self._roots.get(first) or {}), salt: hash_}
        while len(salts) > _SALTS:
            del salts[next(iter(salts))]
        self._roots.put(first, salts, len(salts))


def _first(tokens: Tokens, block: int) -> bytes:
    return tokens[:block].tobytes()


def extras_of(event: Stored) -> Extras | None:
    """What took part in the hash, from the untagged keys of an event; None when that cannot be told."""
    if event.lora:
        return None  # the adapter's path takes part, and events do not carry it
    keys = list(event.extra[0] or ()) if event.extra else []
    if any(event.extra[1:_PER_EVENT]) or len(keys) > 1 or not all(isinstance(key, str) for key in keys):
        return None  # media
    return Extras(salt=event.salt or (keys[0] if keys else None))
