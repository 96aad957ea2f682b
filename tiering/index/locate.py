"""From the sets along a prompt's blocks to the longest usable prefix of every holder."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from backends.contracts import TIERS
from tiering.index.memory import I64, SHARED, U32, U64, Bools, Memory

_FS = TIERS.index("fs")
_MANY = 64  # runs from which on it pays to look for the last useful one first


@dataclass(frozen=True, slots=True)
class Match:
    """Holders that have the beginning of a prompt.

    `reach[t, i]` is the longest prefix, in tokens, that `holders[i]` can resume from reading tiers TIERS[0..t].
    """

    holders: I64  # (k,) bits
    reach: I64  # (len(TIERS), k)


NOBODY = Match(np.empty(0, np.int64), np.empty((len(TIERS), 0), np.int64))


@dataclass(frozen=True, slots=True)
class Runs:
    """Stretches of blocks with the same owners, for the k holders of the first block."""

    holders: I64  # (k,)
    starts: I64  # (r + 1,) first block of each run, and the end
    held: Bools  # (r, tiers, k)

    def reach(self) -> I64:
        """Blocks (tiers, k) in the longest prefix each holder can use from tiers 0..t.

        The engine takes what is on the GPU up to the first gap, and from there on only what other tiers hold: a block
        that is on the GPU behind a gap is of no use.
        """
        held = self.held.copy()
        np.logical_and.accumulate(self.held[:, 0], out=held[:, 0])
        within = np.logical_or.accumulate(held, axis=1)
        usable = np.logical_and.accumulate(within, axis=0)
        ends: I64 = self.starts[usable.sum(axis=0)]  # usable runs are a prefix, so their number says where it ends
        return ends


def runs_of(memory: Memory, sets: U32) -> Runs | None:
    """Group blocks with set ids `sets` (n,), n > 0, into runs. None when nobody holds the first block."""
    edges = np.flatnonzero(sets[1:] != sets[:-1])
    starts = np.empty(len(edges) + 2, np.int64)
    starts[0], starts[-1] = 0, len(sets)
    starts[1:-1] = edges + 1
    return _runs(with_shared(memory, memory.masks[sets[starts[:-1]]]), starts)


def runs_of_chunks(memory: Memory, sets: U32, chunk: int) -> Runs | None:
    """The same where tiers below the GPU hold chunks, known by their last block; blocks may be missing (set 0)."""
    masks = with_shared(memory, memory.masks[sets])
    last = np.arange(len(sets)) // chunk * chunk + chunk - 1
    whole = last < len(sets)
    below = masks[:, 1:].copy()
    masks[whole, 1:] = below[last[whole]]
    masks[~whole, 1:] = 0
    return _runs(masks, np.arange(len(sets) + 1))


def _runs(masks: U64, starts: I64) -> Runs | None:
    anywhere = np.bitwise_or.reduce(masks if len(masks) > _MANY else masks[:1], axis=1)
    holders = np.flatnonzero(np.unpackbits(anywhere[0].view(np.uint8), bitorder="little"))
    if not len(holders):
        return None
    if len(masks) > _MANY:
        # Where nobody is left the rest need not be unpacked.
        left = np.logical_or.reduce(np.bitwise_and.accumulate(anywhere), axis=1)
        if not left[-1]:
            masks = masks[: int(left.argmin())]
            starts = starts[: len(masks) + 1]
    return Runs(holders, starts, unpack(masks, holders))


def unpack(masks: U64, holders: I64) -> Bools:
    """Bits (n, tiers, k) of `holders` (k,) in masks (n, tiers, words)."""
    bits: Bools = (masks[:, :, holders >> 6] >> (holders & 63).astype(np.uint64) & np.uint64(1)).astype(np.bool_)
    return bits


def with_shared(memory: Memory, masks: U64) -> U64:
    """Masks (n, tiers, words) in which files of a shared filesystem count for each replica that mounts it."""
    if memory.header[SHARED]:
        for holder in np.flatnonzero(memory.members.any(axis=1)).tolist():
            has = (masks[:, _FS, holder >> 6] >> np.uint64(holder & 63) & np.uint64(1)).astype(np.bool_)
            masks[has, _FS] |= memory.members[holder]
    return masks
