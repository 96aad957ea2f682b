"""The text chain: xxh3 over the bytes of a prompt, block by block, for pools without events or tokenizer.

Keys are no engine's hashes; they only have to be equal for equal beginnings. Blocks are short at the beginning of a
prompt and longer later on, at offsets that do not depend on what follows, so a longer prompt repeats the keys of a
shorter one. Tenant, salt and model seed the chain: prompts of different owners never meet.

The bytes are hashed as the client sent them: a client that writes the same message differently in its next turn
loses the match, and no bytes are parsed to prevent that.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import xxhash

from tiering.chain import Chain
from tiering.memo import BoundedMemo

SHORT, LONG = 1024, 4096  # bytes per block: the first eight, and the others
_LONG_FROM = 8
_SHORT_END = SHORT * _LONG_FROM
_CHECKPOINT = 32 * 1024  # a multiple of both block sizes


def _block_ends(blocks: int) -> npt.NDArray[np.int64]:
    index = np.arange(blocks + 1, dtype=np.int64)
    return np.where(index <= _LONG_FROM, index * SHORT, _SHORT_END + (index - _LONG_FROM) * LONG)


_ENDS = _block_ends(8192)  # bytes before each block: enough for 32 MiB


@dataclass(frozen=True, slots=True)
class TextChain:
    """Keys of the blocks of one prompt's bytes."""

    keys: array[int]
    size: int  # bytes

    def chain(self, tokens: int) -> Chain:
        """As a chain of a prompt that is (thought to be) `tokens` tokens long."""
        keys = np.frombuffer(self.keys, np.uint64) if self.keys else np.empty(0, np.uint64)
        ends = _ends(len(self.keys)) * tokens // max(self.size, 1)
        return Chain(keys, 0, tokens, uneven=ends)


def block_bytes(blocks: int) -> int:
    """Bytes of the block that follows the first `blocks` of a prompt."""
    return SHORT if blocks < _LONG_FROM else LONG


class TextHasher:
    """Text chains, with what earlier turns of a conversation computed.

    The memo keeps keys, never text, at checkpoints of 32 KiB: a further turn hashes the beginning once, as one piece,
    and the rest block by block.
    """

    __slots__ = ("_memo",)

    def __init__(self, memo_keys: int = 1_000_000) -> None:
        self._memo: BoundedMemo[int, array[int]] = BoundedMemo(memo_keys)

    def seed(self, *parts: str | bytes | None) -> int:
        """Seed of a chain from what must not be shared: model, tenant or salt, tools."""
        seed = len(parts)
        for part in parts:
            data = part.encode() if isinstance(part, str) else part
            seed = xxhash.xxh3_64_intdigest(b"" if data is None else b"\1" + data, seed)
        return seed

    def chain_of(self, segments: Sequence[bytes | memoryview], seed: int) -> TextChain:
        """Text chain of a prompt in segments, say the raw bytes of each message.

        One contiguous segment, the raw bytes of the whole message list without its closing bracket, is cheapest.
        """
        data = segments[0] if len(segments) == 1 else b"\0".join(segments)
        view, size = memoryview(data), len(data)
        checkpoint = size // _CHECKPOINT * _CHECKPOINT
        digest = xxhash.xxh3_64_intdigest(view[:checkpoint], seed) if checkpoint else 0
        known = self._known(view, checkpoint, digest, seed) if checkpoint else None
        keys = array("Q") if known is None else known[:]
        start = _offset(len(keys))
        self._hash(view, keys, start, seed)
        if checkpoint > start:
            count = _count(checkpoint)
            self._memo.put(digest, keys[:count], count)
        return TextChain(keys, size)

    def _known(self, view: memoryview, checkpoint: int, digest: int, seed: int) -> array[int] | None:
        known = self._memo.get(digest)
        while known is None:
            checkpoint = checkpoint // 2 // _CHECKPOINT * _CHECKPOINT
            if not checkpoint:
                return None
            known = self._memo.get(xxhash.xxh3_64_intdigest(view[:checkpoint], seed))
        return known

    @staticmethod
    def _hash(view: memoryview, keys: array[int], start: int, seed: int) -> None:
        digest, append = xxhash.xxh3_64_intdigest, keys.append
        previous = keys[-1] if keys else seed
        size = len(view)
        for at in range(start, min(_SHORT_END, size - SHORT + 1), SHORT):
            previous = digest(view[at : at + SHORT], previous)
            append(previous)
        for at in range(max(start, _SHORT_END), size - LONG + 1, LONG):
            previous = digest(view[at : at + LONG], previous)
            append(previous)


def _offset(blocks: int) -> int:
    return blocks * SHORT if blocks <= _LONG_FROM else _SHORT_END + (blocks - _LONG_FROM) * LONG


def _count(offset: int) -> int:
    return offset // SHORT if offset <= _SHORT_END else _LONG_FROM + (offset - _SHORT_END) // LONG


def _ends(blocks: int) -> npt.NDArray[np.int64]:
    if blocks < len(_ENDS):
        return _ENDS[: blocks + 1]
    return _block_ends(blocks)
