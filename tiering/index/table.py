"""Block keys in a log with a hash over it.

Blocks lie in the log in the order engines stored them, so the blocks of a prompt are neighbours: a reader finds the
first by hash and compares the rest as one slice. A lookup costs per *segment*, not per block. The hash is linear
probing over 32-bit positions; a removed block stays linked, owned by nobody, until the log's tail reaches it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tiering.index.memory import CHUNK, HEAD, I64, TAIL, U32, U64, Bools, Memory

SET_MASK = np.uint32(0x7FFFFFFF)
TOUCHED = np.uint32(0x80000000)  # stored again since written to the log: not the oldest, whatever its position
_SETS = int(SET_MASK)
_EMPTY, _DELETED, _FIRST = 0, 1, 2
_HALF = np.uint64(32)
_STRETCH = 2048  # keys compared with the log at first
_SHORT = 32  # blocks of a segment that is not worth a look of its own
_SCATTERED = 4  # short segments before the rest is looked up block by block
_BULK = 2048
_ONE_BY_ONE = 16  # keys that take less time so than another round of all that are left


@dataclass(frozen=True, slots=True)
class Runs:
    """Neighbouring blocks of a chain with the same set."""

    sets: list[int]  # r of them
    starts: list[int]  # first block of each, and the end: r + 1


def starts_of(edges: Bools) -> I64:
    """First blocks of runs, and the end (r + 1,), from whether a run ends with each block but the last."""
    return np.concatenate(((0,), edges.nonzero()[0] + 1, (len(edges) + 1,)))


class BlockTable:
    """The log and its hash. Methods that change anything belong to the single writer."""

    __slots__ = ("_keys", "_log", "_memory", "_slots", "_slots_n")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._log = memory.sizes.log
        self._slots_n = memory.sizes.slots
        # Scalar reads through a memoryview cost a third of those through an array.
        self._slots = memoryview(memory.slots.data).cast("B").cast("I")
        self._keys = memoryview(memory.keys.data).cast("B").cast("Q")

    def release(self) -> None:
        """Let go of the memory, so that it can be closed."""
        self._slots.release()
        self._keys.release()

    # --- reading ---------------------------------------------------------------------------------------------

    def find_one(self, key: int) -> int:
        """Position of `key` in the log, -1 when it is not there."""
        slots, keys, last = self._slots, self._keys, self._slots_n - 1
        slot = (key >> 32) * self._slots_n >> 32
        for _ in range(self._slots_n):
            entry = slots[slot]
            if entry == _EMPTY:
                return -1
            if entry != _DELETED and keys[entry - _FIRST] == key:
                return entry - _FIRST
            slot = slot + 1 if slot != last else 0
        return -1

    def find(self, keys: U64) -> I64:
        """Positions of `keys` (n,) in the log, -1 for those that are not there."""
        found = np.full(len(keys), -1, np.int64)
        slots = self._home(keys)
        open_ = np.arange(len(keys))
        while len(open_) > _ONE_BY_ONE:
            entries = self._memory.slots.take(slots)
            at = entries.astype(np.int64) - _FIRST
            hit = (self._memory.keys.take(at) == keys) & (entries >= _FIRST)
            found[open_[hit]] = at[hit]
            more = ((entries != _EMPTY) & ~hit).nonzero()[0]
            open_, keys, slots = open_.take(more), keys.take(more), self._next(slots.take(more))
        for place, key in zip(open_.tolist(), keys.tolist(), strict=True):
            found[place] = self.find_one(key)
        return found

    def sets_of(self, keys: U64) -> U32:
        """Set id of every key (n,); 0, the empty set, for keys that are not there."""
        parts = self._segments(keys)
        rest = keys[sum(map(len, parts)) :]
        if len(rest):
            at = self.find(rest)
            values = self._memory.values.take(at)
            values[at < 0] = 0
            parts.append(values)
        return np.concatenate(parts) & SET_MASK if parts else np.empty(0, np.uint32)

    def runs_along(self, keys: U64) -> Runs:
        """The leading ones of `keys` (n,) that are in the log, in runs of the same set."""
        sets: list[int] = []
        starts = [0]
        for values in self._segments(keys):
            raw, start, first = values.tobytes(), starts[-1], int(values[0]) & _SETS
            if sets and sets[-1] == first:
                starts.pop()  # the run goes on
            else:
                sets.append(first)
            if raw[4:] != raw[:-4]:  # rarely so, and seen at once
                within = values & SET_MASK
                edges = (within[1:] != within[:-1]).nonzero()[0] + 1
                sets += within.take(edges).tolist()
                starts += (edges + start).tolist()
            starts.append(start + len(values))
        return Runs(sets, starts)

    def _segments(self, keys: U64) -> list[U32]:
        """Values of the leading keys that are in the log, in pieces, none of them empty."""
        parts: list[U32] = []
        at, short, n = 0, 0, len(keys)
        while at < n:
            if short >= _SCATTERED:
                wanted = min(n - at, _BULK)
                values = self._bulk(keys[at : at + wanted])
            else:
                position = self.find_one(int(keys[at]))
                if position < 0:
                    break
                values = self._stretch(position, keys[at:])
                wanted = len(values)
                short += len(values) < _SHORT
            if len(values):
                parts.append(values)
            at += len(values)
            if len(values) < wanted:
                break
        return parts

    def _stretch(self, position: int, keys: U64) -> U32:
        """Values of the longest stretch of the log from `position` that equals `keys`."""
        longest = min(len(keys), self._log - position)
        length, step = 0, _STRETCH
        while length < longest:
            end = min(length + step, longest)
            equal = self._memory.keys[position + length : position + end] == keys[length:end]
            differs = int(equal.argmin())  # 0 when all are equal
            if not equal[differs]:
                length += differs
                break
            length, step = end, longest
        return self._memory.values[position : position + length]

    def _bulk(self, keys: U64) -> U32:
        """Values of the leading keys that are in the log, found one by one."""
        at = self.find(keys)
        missing = at < 0
        count = int(missing.argmax()) if missing.any() else len(keys)
        return self._memory.values.take(at[:count])

    # --- writing ---------------------------------------------------------------------------------------------

    def values(self, at: I64) -> U32:
        """Values at log positions, touched bit included."""
        return self._memory.values.take(at)

    def assign(self, at: I64, values: U32) -> None:
        """Set the values at log positions."""
        self._memory.values[at] = values

    def append(self, keys: U64) -> I64:
        """Write new, distinct keys to the log, owned by the empty set. There must be `room` for them."""
        at = self._claim(len(keys))
        self._memory.keys[at] = keys
        self._memory.values[at] = 0
        self._link(keys, at)
        return at

    @property
    def room(self) -> int:
        """Free slots of the log."""
        header = self._memory.header
        return self._log - int(header[HEAD] - header[TAIL])

    def clean(self, keep: Callable[[U32], Bools]) -> U32:
        """Free the oldest chunk of the log: blocks that `keep(values)` names move to its head, others go.

        Returns the values of the blocks that went.
        """
        header = self._memory.header
        count = min(CHUNK, int(header[HEAD] - header[TAIL]))
        at = (int(header[TAIL]) + np.arange(count)) % self._log
        values = self._memory.values.take(at)
        kept = keep(values)
        gone = ~kept
        self._unlink(at[gone])
        keys, slots = self._memory.keys.take(at[kept]), self._slots_of(at[kept])
        header[TAIL] += np.uint64(count)
        moved = self._claim(len(keys))
        self._memory.keys[moved] = keys
        self._memory.values[moved] = values[kept] & SET_MASK
        self._memory.slots[slots] = (moved + _FIRST).astype(np.uint32)
        return values[gone]

    def _claim(self, count: int) -> I64:
        head = int(self._memory.header[HEAD])
        self._memory.header[HEAD] += np.uint64(count)
        start = head % self._log
        at = np.arange(start, start + count)
        if start + count > self._log:
            at[self._log - start :] -= self._log
        return at

    def _link(self, keys: U64, at: I64) -> None:
        table = self._memory.slots
        entries = (at + _FIRST).astype(np.uint32)
        slots = self._home(keys)
        while len(entries) > _ONE_BY_ONE:
            free = table.take(slots) < _FIRST
            table[slots[free]] = entries[free]
            # Several may have written to one slot: the last one has it, the others go on.
            more = (table.take(slots) != entries).nonzero()[0]
            entries, slots = entries.take(more), self._next(slots.take(more))
        for entry, slot in zip(entries.tolist(), slots.tolist(), strict=True):
            while self._slots[slot] >= _FIRST:
                slot = slot + 1 if slot + 1 != self._slots_n else 0
            self._slots[slot] = entry

    def _slots_of(self, at: I64) -> I64:
        """Slots of the hash that point to log positions `at`; every one is linked."""
        entries = (at + _FIRST).astype(np.uint32)
        slots = self._home(self._memory.keys.take(at))
        result = np.empty(len(at), np.int64)
        open_ = np.arange(len(at))
        while len(entries):
            here = self._memory.slots.take(slots) == entries
            result[open_[here]] = slots[here]
            more = ~here
            entries, open_, slots = entries[more], open_[more], self._next(slots[more])
        return result

    def _unlink(self, at: I64) -> None:
        holes = self._slots_of(at)
        self._memory.slots[holes] = _DELETED
        while len(holes):
            holes = self._close(holes)

    def _close(self, holes: I64) -> I64:
        """Fill holes with later entries that may stand there, so that no deleted slot stays behind.

        Deleted slots left in place would pile up until every miss walks the whole table. A hole with another one behind
        it has to wait for that one; those are returned.
        """
        table = self._memory.slots
        waiting: list[I64] = []
        scan = self._next(holes)
        while len(holes):
            entries = table.take(scan)
            table[holes[entries == _EMPTY]] = _EMPTY
            waiting.append(holes[entries == _DELETED])
            more = entries >= _FIRST
            holes, scan, entries = holes[more], scan[more], entries[more]
            homes = self._home(self._memory.keys.take(entries.astype(np.int64) - _FIRST))
            movable = self._ahead(homes, scan) >= self._ahead(holes, scan)  # the hole is on the entry's way from home
            table[holes[movable]] = entries[movable]
            table[scan[movable]] = _DELETED
            holes = np.where(movable, scan, holes)
            scan = self._next(scan)
        return np.concatenate(waiting)

    def _ahead(self, slots: I64, of: I64) -> I64:
        distance = of - slots
        distance[distance < 0] += self._slots_n
        return distance

    def _home(self, keys: U64) -> I64:
        return (((keys >> _HALF) * np.uint64(self._slots_n)) >> _HALF).view(np.int64)

    def _next(self, slots: I64) -> I64:
        slots = slots + 1
        slots[slots == self._slots_n] = 0
        return slots
