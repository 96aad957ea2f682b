"""Interned sets of (holder, tier): what a block's 31-bit set id means.

A holder is one DP rank of one replica, or a filesystem that several replicas share. Blocks of one prompt nearly always
have the same few owners, so a table of sets is small, and taking a holder out of every block is a change of the sets
alone, whatever the number of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from backends.contracts import TIERS, Tier
from tiering.index.memory import I64, NAME_BYTES, NAMES_VERSION, SHARED, U32, Bools, Memory

EMPTY = 0
CODES = 1 << 2 * len(TIERS)  # two bits a tier: 0 as before, REMOVED, STORED
REMOVED, STORED = 1, 2


class Holders:
    """Names of holders and their bits."""

    __slots__ = ("_bits", "_memory")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._bits: dict[str, int] = {name.decode(): bit for bit, name in enumerate(memory.names.tolist()) if name}

    def get(self, name: str) -> int | None:
        """Bit of a holder, None when it has none."""
        return self._bits.get(name)

    def of(self, replica: str) -> list[tuple[str, int]]:
        """Names and bits of all ranks of a replica."""
        ranks = replica + "#"
        return [(name, bit) for name, bit in self._bits.items() if name == replica or name.startswith(ranks)]

    def add(self, name: str) -> int | None:
        """Bit of a holder, new if need be; None when all are taken."""
        bit = self._bits.get(name)
        if bit is not None:
            return bit
        encoded = name.encode()
        if not encoded or len(encoded) > NAME_BYTES:
            raise ValueError(f"a holder's name must have 1 to {NAME_BYTES} bytes")
        free = np.flatnonzero(self._memory.names == b"")
        if not len(free):
            return None
        bit = int(free[0])
        self._memory.names[bit] = encoded
        self._bits[name] = bit
        self._changed()
        return bit

    def remove(self, name: str) -> None:
        """Give the bit back. Its blocks must have been forgotten before."""
        bit = self._bits.pop(name, None)
        if bit is None:
            return
        self._memory.names[bit] = b""
        word, mask = _place(bit)
        self._memory.members[bit] = 0
        self._memory.members[:, word] &= ~mask
        self._changed()

    def share(self, shared: int, member: int) -> None:
        """`member` reads the files of `shared`."""
        word, mask = _place(member)
        self._memory.members[shared, word] |= mask
        self._changed()

    def _changed(self) -> None:
        self._memory.header[SHARED] = np.count_nonzero(self._memory.members.any(axis=1))
        self._memory.header[NAMES_VERSION] += np.uint64(1)


class ReplicaSets:
    """The writer's side: interning, reference counts, transitions."""

    __slots__ = ("_counts", "_free", "_freed", "_holding", "_ids", "_memory", "_used")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._counts = np.zeros(memory.sizes.sets, np.int64)  # blocks that refer to a set
        self._holding = np.zeros(memory.sizes.sets, np.bool_)  # the set has a holder
        self._ids: dict[bytes, int] = {memory.masks[EMPTY].tobytes(): EMPTY}
        self._free: list[int] = []
        self._freed = np.zeros(memory.sizes.sets, np.bool_)
        self._used = 1

    @property
    def live(self) -> int:
        """Blocks that somebody holds."""
        return int(self._counts[: self._used][self._holding[: self._used]].sum())

    @property
    def used(self) -> int:
        """Distinct sets in use, the empty one included."""
        return self._used - len(self._free)

    def held(self, sets: U32) -> Bools:
        """Whether somebody holds each of `sets` (n,)."""
        return self._holding.take(sets)

    def after(self, sets: U32, codes: npt.NDArray[np.uint8], holder: int) -> U32:
        """Sets (n,) once `holder` has done what `codes` (n,) say. Counts move along."""
        moves = sets.astype(np.int64) * CODES + codes
        if moves[0] == moves[-1] and (moves == moves[0]).all():
            distinct, inverse, counts = moves[:1], None, np.array([len(moves)])
        else:
            distinct, inverse, counts = np.unique(moves, return_inverse=True, return_counts=True)
        after = np.empty(len(distinct), np.uint32)
        for row, (move, count) in enumerate(zip(distinct.tolist(), counts.tolist(), strict=True)):
            after[row] = self._move(move // CODES, move % CODES, holder, count)
        self._sweep(distinct // CODES)
        return after[np.zeros(len(sets), np.intp) if inverse is None else inverse]

    def release(self, sets: U32) -> None:
        """Blocks with these sets (n,) are gone from the log."""
        counts = np.bincount(sets, minlength=self._used)
        self._counts[: len(counts)] -= counts
        self._sweep(np.flatnonzero(counts))

    def forget(self, holder: int, tiers: Sequence[Tier] = TIERS) -> None:
        """Take `holder` out of every set, in `tiers`."""
        word, mask = _place(holder)
        masks = self._memory.masks[: self._used]
        columns = [TIERS.index(tier) for tier in tiers]
        changed = np.flatnonzero((masks[:, columns, word] & mask).any(axis=1))
        for set_id in changed.tolist():
            # Two sets may become equal; both stay valid, only one of them is found again by its content.
            if self._ids.get(masks[set_id].tobytes()) == set_id:
                del self._ids[masks[set_id].tobytes()]
            masks[set_id, columns, word] &= ~mask
            self._ids.setdefault(masks[set_id].tobytes(), set_id)
        self._holding[changed] = masks[changed].any(axis=(1, 2))

    def _move(self, old: int, code: int, holder: int, count: int) -> int:
        word, mask = _place(holder)
        row = self._memory.masks[old].copy()
        for tier in range(len(TIERS)):
            what = code >> 2 * tier & 3
            if what == STORED:
                row[tier, word] |= mask
            elif what == REMOVED:
                row[tier, word] &= ~mask
        new = self._intern(row)
        if old != EMPTY:
            self._counts[old] -= count
        if new != EMPTY:
            self._counts[new] += count
        return new

    def _intern(self, row: npt.NDArray[np.uint64]) -> int:
        content = row.tobytes()
        known = self._ids.get(content)
        if known is not None:
            return known
        if self._free:
            new = self._free.pop()
            self._freed[new] = False
        elif self._used < self._memory.sizes.sets:
            new = self._used
            self._used += 1
        else:
            return EMPTY  # no room for another set: the block becomes unknown, which is never wrong
        self._memory.masks[new] = row
        self._holding[new] = bool(row.any())
        self._ids[content] = new
        return new

    def _sweep(self, sets: I64) -> None:
        for set_id in sets[self._counts[sets] == 0].tolist():
            if set_id == EMPTY or self._freed[set_id]:
                continue
            content = self._memory.masks[set_id].tobytes()
            if self._ids.get(content) == set_id:
                del self._ids[content]
            self._holding[set_id] = False
            self._freed[set_id] = True
            self._free.append(set_id)


def _place(holder: int) -> tuple[int, np.uint64]:
    return holder >> 6, np.uint64(1 << (holder & 63))
