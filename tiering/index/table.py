"""Block keys in a log with a hash over it.

Blocks lie in the log in the order engines stored them, so the blocks of a prompt are neighbours: a reader finds the
first by hash and compares the rest as one slice. A lookup costs per *segment*, not per block. The hash is linear
probing over 32-bit positions; a removed block stays linked, owned by nobody, until the log's tail reaches it.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tiering.index.memory import CHUNK, HEAD, I64, TAIL, U32, U64, Bools, Memory

SET_MASK = np.uint32(0x7FFFFFFF)
TOUCHED = np.uint32(0x80000000)  # stored again since written to the log: not the oldest, whatever its position
_EMPTY, _DELETED, _FIRST = 0, 1, 2
_HALF = np.uint64(32)
_RUN = 256  # first stretch of keys compared with the log
_SCATTERED = 4  # segments shorter than a stretch before the rest is looked up block by block
_BULK = 1024


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
        for _ in range(self._slots_n):
            entries = self._memory.slots.take(slots)
            at = entries.astype(np.int64) - _FIRST
            hit = (self._memory.keys.take(at) == keys) & (entries >= _FIRST)
            found[open_[hit]] = at[hit]
            more = (entries != _EMPTY) & ~hit
            if not more.any():
                break
            open_, keys, slots = open_[more], keys[more], self._next(slots[more])
        return found

    def sets_of(self, keys: U64) -> U32:
        """Set id of every key (n,); 0, the empty set, for keys that are not there."""
        at = self.find(keys)
        sets = self._memory.values.take(at) & SET_MASK
        sets[at < 0] = 0
        return sets

    def sets_along(self, keys: U64) -> U32:
        """Set ids (m,) of the leading m <= n keys that are in the log."""
        parts: list[U32] = []
        at, scattered, n = 0, 0, len(keys)
        while at < n:
            if scattered >= _SCATTERED:
                stretch = keys[at : at + _BULK]
                sets, complete = self._bulk(stretch)
            else:
                position = self.find_one(int(keys[at]))
                if position < 0:
                    break
                sets, complete = self._run(position, keys[at:]), True
                scattered += len(sets) < _RUN
            parts.append(sets)
            at += len(sets)
            if not complete:
                break
        if not parts:
            return np.empty(0, np.uint32)
        sets = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return sets & SET_MASK

    def _run(self, position: int, keys: U64) -> U32:
        """Values of the longest stretch of the log from `position` that equals `keys`."""
        longest = min(len(keys), self._log - position)
        length, step = 0, _RUN
        while length < longest:
            end = min(length + step, longest)
            equal = self._memory.keys[position + length : position + end] == keys[length:end]
            if not equal.all():
                length += int(equal.argmin())
                break
            length, step = end, longest
        return self._memory.values[position : position + length].copy()

    def _bulk(self, keys: U64) -> tuple[U32, bool]:
        at = self.find(keys)
        missing = at < 0
        count = int(missing.argmax()) if missing.any() else len(keys)
        return self._memory.values.take(at[:count]), count == len(keys)

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
        while len(entries):
            free = table.take(slots) < _FIRST
            table[slots[free]] = entries[free]
            # Several may have written to one slot: the last one has it, the others go on.
            more = table.take(slots) != entries
            entries, slots = entries[more], self._next(slots[more])

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
