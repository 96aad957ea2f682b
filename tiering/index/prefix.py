"""`PrefixIndex`: the prefix index and its single writer."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

from backends.contracts import TIERS
from tiering.chain import as_keys, group_mask, is_kept
from tiering.events.decode import Cleared, KvEvent, Removed, Stored
from tiering.index.memory import CHUNK, I64, SAMPLE, SEQUENCE, U32, U64, Bools, Memory, Sizes
from tiering.index.reader import IndexReader, holder_name
from tiering.index.replica_sets import STORED, ReplicaSets
from tiering.index.table import SET_MASK, TOUCHED

Codes = npt.NDArray[np.uint8]

_STORES = np.uint8(sum(STORED << 2 * tier for tier in range(len(TIERS))))


class PrefixIndex(IndexReader):
    """The index and its single writer."""

    __slots__ = ("_sets",)

    def __init__(self, memory: Memory) -> None:
        super().__init__(memory)
        self._sets = ReplicaSets(memory)

    @classmethod
    def create(cls, sizes: Sizes | None = None, *, path: Path | None = None, sample: int = 1) -> PrefixIndex:
        """A new index, private to the process unless it has a `path`, best in /dev/shm.

        `sample`, a power of two, keeps one block in so many, for engines with small pages. Caches evict the end of a
        prompt first, so a block that is there stands for those before it; matches then end at a kept block.
        """
        if sample < 1 or sample & sample - 1:
            raise ValueError("sample must be a power of two")
        memory = Memory.create(sizes or Sizes(), path)
        memory.header[SAMPLE] = sample
        return cls(memory)

    def apply(self, replica: str, events: Iterable[KvEvent], rank: int = 0) -> int:
        """Take in what one DP rank of a replica says it stored and removed, in order. Returns the blocks named."""
        holder = self._holders.add(holder_name(replica, rank))
        if holder is None:
            return 0
        named = 0
        batch: list[Stored | Removed] = []
        for event in events:
            if isinstance(event, Cleared):
                named += self._apply(holder, batch)
                batch = []
                # The event has no tier: engines send it for the GPU, and what lies below stays.
                with self._writing():
                    self._sets.forget(holder, ("gpu",))
            else:
                batch.append(event)
        return named + self._apply(holder, batch)

    def forget(self, replica: str, rank: int | None = None) -> None:
        """Nothing is known any more of a replica, or of one of its ranks: unknown beats wrong."""
        only = None if rank is None else holder_name(replica, rank)
        for name, bit in self._holders.of(replica):
            if only is None or name == only:
                with self._writing():
                    self._sets.forget(bit)

    def remove(self, replica: str) -> None:
        """Forget a replica and give its place to others."""
        self.forget(replica)
        for name, _ in self._holders.of(replica):
            with self._writing():
                self._holders.remove(name)

    def share(self, filesystem: str, replica: str) -> bool:
        """Let files stored under the name `filesystem` count for `replica` too. False when there is no room."""
        shared, member = self._holders.add(filesystem), self._holders.add(replica)
        if shared is None or member is None:
            return False
        with self._writing():
            self._holders.share(shared, member)
        return True

    @property
    def live(self) -> int:
        """Blocks that somebody holds."""
        return self._sets.live

    @property
    def sets(self) -> int:
        """Distinct sets of holders in use."""
        return self._sets.used

    @property
    def nbytes(self) -> int:
        """Bytes of the shared part of the index."""
        return self._memory.nbytes

    def _apply(self, holder: int, events: Sequence[Stored | Removed]) -> int:
        if not events:
            return 0
        keys, codes = flatten(events)
        named = len(keys)
        if self._sample > 1:
            kept = is_kept(keys, self._sample)
            keys, codes = keys[kept], codes[kept]
        for start in range(0, len(keys), CHUNK):
            with self._writing():
                self._chunk(holder, keys[start : start + CHUNK], codes[start : start + CHUNK])
        return named

    def _chunk(self, holder: int, keys: U64, codes: Codes) -> None:
        while self._table.room < len(keys):
            self._sets.release(self._table.clean(self._keep()) & SET_MASK)
        at = self._table.find(keys)
        new = (at < 0) & (codes & _STORES != 0)
        if new.any():
            missing = at < 0
            at[new] = self._add(keys[new])
            if (missing & ~new).any():
                at[missing] = self._table.find(keys[missing])  # stored and removed within the batch
        known = at >= 0
        if not known.all():
            at, codes = at[known], codes[known]
        if not len(at):
            return
        at, codes = last_word(at, codes)
        values = self._table.values(at)
        after = self._sets.after(values & SET_MASK, codes, holder)
        again = ((values != 0) & (codes & _STORES != 0)).astype(np.uint32) * TOUCHED
        self._table.assign(at, after | (values & TOUCHED) | again)

    def _add(self, keys: U64) -> I64:
        _, first = np.unique(keys, return_index=True)
        if len(first) == len(keys):
            return self._table.append(keys)
        self._table.append(keys[np.sort(first)])
        return self._table.find(keys)

    def _keep(self) -> Callable[[U32], Bools]:
        """Which blocks at the tail of the log stay: those somebody holds; over the cap only those stored again."""
        over = self._sets.live > self._memory.sizes.blocks

        def keep(values: U32) -> Bools:
            held = self._sets.held(values & SET_MASK)
            return held & (values >= TOUCHED) if over else held

        return keep

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        one = np.uint64(1)
        self._memory.header[SEQUENCE] += one
        try:
            yield
        finally:
            self._memory.header[SEQUENCE] += one


def flatten(events: Sequence[Stored | Removed]) -> tuple[U64, Codes]:
    """Keys and codes (n,) of all blocks in events, in order."""
    hashes: list[int] = []
    counts, codes, groups = [], [], []
    for event in events:
        hashes += event.hashes
        counts.append(len(event.hashes))
        codes.append(event.verb << 2 * TIERS.index(event.tier))
        groups.append(event.group)
    keys = as_keys(hashes)
    if any(groups):
        masks = np.array([group_mask(group) for group in groups], np.uint64)
        keys = keys ^ np.repeat(masks, counts)
    if len(set(codes)) == 1:
        return keys, np.full(len(keys), codes[0], np.uint8)
    return keys, np.repeat(np.array(codes, np.uint8), counts)


def last_word(at: I64, codes: Codes) -> tuple[I64, Codes]:
    """One code per block: what the last event said of each tier."""
    distinct, inverse = np.unique(at, return_inverse=True)
    if len(distinct) == len(at):
        return at, codes
    merged = np.zeros(len(distinct), np.uint8)
    for tier in range(len(TIERS)):
        said = codes & np.uint8(3 << 2 * tier)
        speaks = said != 0
        last = np.zeros(len(distinct), np.uint8)
        last[inverse[speaks]] = said[speaks]  # of several the last is kept
        merged |= last
    return distinct, merged
