"""From the sets along a prompt's blocks to the longest usable prefix of every holder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np

from backends.contracts import TIERS
from tiering.index.memory import I64, SHARED, U32, U64, Bools, Memory
from tiering.index.table import Runs, starts_of

_FS = TIERS.index("fs")
_FEW = 32  # runs that integers are quicker for than arrays


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Who can use how much of a chain. When nobody can, `usable` is empty, and there is no more to ask.

    `usable[i]` says who can use the first `ends[i]` blocks: bit t * width + h for holder h when it reads TIERS[0..t].
    Each is a true part of the one before, and none is empty.
    """

    usable: list[int]
    ends: list[int]
    width: int

    @property
    def bits(self) -> int:
        """Pairs of tier and holder that can use something."""
        return self.usable[0].bit_count()

    def each(self) -> Iterator[tuple[int, int, int]]:
        """Tier, holder and blocks of every such pair."""
        for here, later, end in zip(self.usable, [*self.usable[1:], 0], self.ends, strict=True):
            stop = here ^ later
            while stop:
                bit = stop.bit_length() - 1
                stop ^= 1 << bit
                yield bit // self.width, bit % self.width, end

    def arrays(self) -> tuple[I64, I64]:
        """Holders (k,) that can use something, and their blocks (tiers, k)."""
        size = self.width * len(TIERS) // 8
        packed = np.frombuffer(b"".join([usable.to_bytes(size, "little") for usable in self.usable]), np.uint8)
        bits = np.unpackbits(packed.reshape(-1, len(TIERS), self.width // 8), axis=-1, bitorder="little")
        holders = np.flatnonzero(bits[0, -1])
        # Who can use one end can use those before it, so their number says which is the last.
        number = np.add.reduce(bits.take(holders, axis=2), axis=0, dtype=np.int64)
        return holders, np.array([0, *self.ends]).take(number)


def prefixes(memory: Memory, runs: Runs) -> Prefixes:
    """Longest usable prefixes of a chain.

    The engine takes what is on the GPU up to the first gap, and from there on only what other tiers hold: a block that
    is on the GPU behind a gap is of no use.
    """
    width = memory.sizes.holders
    if len(runs.sets) > _FEW:
        return _of_many(masks_of(memory, np.array(runs.sets, np.uint32)), np.array(runs.starts))
    if memory.header[SHARED]:
        return _of_few(masks_of(memory, np.array(runs.sets, np.uint32)), runs.starts, width)
    return _of_few([memory.masks[set_id] for set_id in runs.sets], runs.starts, width)


def prefixes_of_chunks(memory: Memory, sets: U32, chunk: int) -> Prefixes:
    """The same from set ids (n,), n > 0, where tiers below the GPU hold chunks, known by their last block.

    Blocks may be missing (set 0).
    """
    last = np.arange(len(sets)) // chunk * chunk + chunk - 1
    below = sets.take(last, mode="clip")
    below[last >= len(sets)] = 0  # a chunk that is not full
    starts = starts_of((sets[1:] != sets[:-1]) | (below[1:] != below[:-1]))
    masks = masks_of(memory, sets.take(starts[:-1]))
    masks[:, 1:] = masks_of(memory, below.take(starts[:-1]))[:, 1:]
    if len(masks) > _FEW:
        return _of_many(masks, starts)
    return _of_few(masks, starts.tolist(), memory.sizes.holders)


def _of_few(masks: Iterable[U64], starts: list[int], width: int) -> Prefixes:
    """The same from the masks (tiers, words) of r runs, and their first blocks and the end (r + 1)."""
    gpu = (1 << width) - 1
    left = (1 << width * len(TIERS)) - 1
    below = left ^ gpu
    usable: list[int] = []
    ends: list[int] = []
    for mask, end in zip(masks, starts[1:], strict=True):
        held = int.from_bytes(mask.tobytes(), "little")
        gpu &= held
        within = held & below | gpu
        for _ in TIERS[1:]:
            within |= within << width  # from tiers 0..t
        within &= left
        if not within:
            break
        if usable and within == left:
            ends[-1] = end
        else:
            usable.append(within)
            ends.append(end)
            left = within
    return Prefixes(usable, ends, width)


def _of_many(masks: U64, starts: I64) -> Prefixes:
    """The same from masks (r, tiers, words), r > 0, and (r + 1,)."""
    width = masks.shape[2] * 64
    words = np.bitwise_or.reduce(masks[0], axis=0).nonzero()[0]  # in the others nobody has the first block
    masks = masks.take(words, axis=2)
    masks[:, 0] = np.bitwise_and.accumulate(masks[:, 0])
    within = np.bitwise_and.accumulate(np.bitwise_or.accumulate(masks, axis=1))
    stops = starts_of((within[1:] != within[:-1]).any(axis=(1, 2)))
    usable = np.zeros((len(stops) - 1, len(TIERS), width // 64), np.uint64)
    usable[:, :, words] = within.take(stops[:-1], axis=0)
    found = [int.from_bytes(row.tobytes(), "little") for row in usable]
    ends = starts.take(stops[1:]).tolist()
    return Prefixes(found, ends, width) if found[-1] else Prefixes(found[:-1], ends[:-1], width)


def masks_of(memory: Memory, sets: U32) -> U64:
    """Masks (n, tiers, words) of sets (n,), a copy: files of a shared filesystem count for all that mount it."""
    masks = memory.masks.take(sets, axis=0)
    if memory.header[SHARED]:
        for holder in np.flatnonzero(memory.members.any(axis=1)).tolist():
            has = (masks[:, _FS, holder >> 6] >> np.uint64(holder & 63) & np.uint64(1)).astype(np.bool_)
            masks[has, _FS] |= memory.members[holder]
    return masks


def unpack(masks: U64, holders: I64) -> Bools:
    """Bits (n, tiers, k) of `holders` (k,) in masks (n, tiers, words)."""
    bits: Bools = (masks[:, :, holders >> 6] >> (holders & 63).astype(np.uint64) & np.uint64(1)).astype(np.bool_)
    return bits
