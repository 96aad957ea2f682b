"""Where blocks lie: the GPU's block pool, and LRU stores for the host and fs tiers. Pure; one owner each.

A block is any hashable id that stands for the whole prefix up to its end (a chain hash), so equal ids mean equal
prefixes.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from backends.profiles import FsTier

Block = Any  # hashable: an int in traces, a digest on the wire


class BlockPool:
    """GPU blocks: named (cached) or not yet, pinned by requests or idle in LRU order.

    `pinned + unnamed + idle <= capacity` always; idle blocks are evicted when slots are taken.
    """

    __slots__ = ("_idle", "_pins", "capacity", "unnamed")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity  # blocks
        self.unnamed = 0  # slots of requests whose tokens are not (yet) cached under an id
        self._pins: dict[Block, int] = {}
        self._idle: OrderedDict[Block, None] = OrderedDict()

    def __contains__(self, block: Block) -> bool:
        return block in self._pins or block in self._idle

    def __len__(self) -> int:
        return len(self._pins) + len(self._idle)

    @property
    def in_use(self) -> int:
        """Slots held by requests."""
        return len(self._pins) + self.unnamed

    def blocks(self) -> Iterable[Block]:
        """All cached blocks."""
        yield from self._pins
        yield from self._idle

    def match(self, blocks: Sequence[Block]) -> int:
        """How many leading blocks are cached."""
        count = 0
        for block in blocks:
            if block not in self._pins and block not in self._idle:
                break
            count += 1
        return count

    def fits(self, matched: Sequence[Block], new: int) -> bool:
        """Whether `new` slots remain once `matched` is pinned."""
        woken = sum(1 for block in matched if block in self._idle)
        return len(self._pins) + woken + self.unnamed + new <= self.capacity

    def take(self, matched: Sequence[Block], new: int) -> list[Block]:
        """Pin `matched` and take `new` unnamed slots; returns the idle blocks that were evicted for them."""
        for block in matched:
            self._idle.pop(block, None)
            self._pins[block] = self._pins.get(block, 0) + 1
        self.unnamed += new
        evicted: list[Block] = []
        while self.in_use + len(self._idle) > self.capacity:
            evicted.append(self._idle.popitem(last=False)[0])
        return evicted

    def name(self, block: Block) -> bool:
        """Turn one unnamed slot into `block`, pinned by its request; False when it was cached already."""
        self.unnamed -= 1
        known = block in self
        self._idle.pop(block, None)
        self._pins[block] = self._pins.get(block, 0) + 1
        return not known

    def release(self, blocks: Sequence[Block], unnamed: int) -> None:
        """Unpin a request's blocks, the tail of the chain first to go, and give its unnamed slots back."""
        self.unnamed -= unnamed
        for block in reversed(blocks):
            left = self._pins[block] - 1
            if left:
                self._pins[block] = left
            else:
                del self._pins[block]
                self._idle[block] = None

    def clear(self) -> None:
        """Forget every idle block. Pinned ones stay with their requests."""
        self._idle.clear()


class BlockStore(Protocol):
    """Contents of a lower tier."""

    def __contains__(self, block: Block) -> bool: ...

    def put(self, block: Block) -> list[Block]:
        """Store `block` as the newest; returns what was evicted for it."""
        ...


class LruStore:
    """Blocks of a lower tier, least recently used out first."""

    __slots__ = ("_blocks", "capacity")

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity  # blocks
        self._blocks: OrderedDict[Block, None] = OrderedDict()

    def __contains__(self, block: Block) -> bool:
        return block in self._blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def blocks(self) -> Iterable[Block]:
        """All blocks, the next to go first."""
        return iter(self._blocks)

    def put(self, block: Block) -> list[Block]:
        """Store `block` as the newest; returns what was evicted for it."""
        if block in self._blocks:
            self._blocks.move_to_end(block)
            return []
        self._blocks[block] = None
        evicted = []
        while len(self._blocks) > self.capacity:
            evicted.append(self._blocks.popitem(last=False)[0])
        return evicted

    def clear(self) -> None:
        """Forget all blocks."""
        self._blocks.clear()


class FsStore:
    """The fs tier of one host (or one shared mount): contents plus one FIFO for reads and one for writes.

    Share one object between the engines of a host. Writes become visible when their turn in the FIFO is over.
    """

    __slots__ = ("_pending", "contents", "read_free_at", "tier", "write_free_at")

    def __init__(self, tier: FsTier, block_tokens: int, contents: BlockStore | None = None) -> None:
        self.tier = tier
        self.contents: BlockStore = contents if contents is not None else LruStore(tier.capacity_tokens // block_tokens)
        self.read_free_at = 0.0
        self.write_free_at = 0.0
        self._pending: deque[tuple[float, Block, Block | None]] = deque()

    def read_s(self, tokens: int) -> float:
        """Seconds that a read of `tokens` takes once its turn has come."""
        return self.tier.latency_s + tokens * self.tier.bytes_per_token / self.tier.bytes_per_s

    def read(self, tokens: int, now: float) -> float:
        """Queue a read of `tokens`; returns when it is done."""
        self.read_free_at = max(now, self.read_free_at) + self.read_s(tokens)
        return self.read_free_at

    def write(self, blocks: Sequence[Block], parent: Block | None, block_tokens: int, now: float) -> None:
        """Queue those of `blocks` that are not stored yet, one after the other; `parent` precedes the first."""
        each = block_tokens * self.tier.bytes_per_token / self.tier.write_bytes_per_s
        at = max(now, self.write_free_at)
        for block in blocks:
            if block not in self.contents:
                at += each
                self._pending.append((at, block, parent))
            parent = block
        self.write_free_at = at

    def settle(self, now: float) -> list[tuple[Block, Block | None]]:
        """Make the writes that are done by `now` visible; returns (block, parent) of each new one."""
        done = []
        while self._pending and self._pending[0][0] <= now:
            _, block, parent = self._pending.popleft()
            if block not in self.contents:
                done.append((block, parent))
            self.contents.put(block)
        return done
