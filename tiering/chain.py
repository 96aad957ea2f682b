"""A prompt as the index sees it: one 64-bit key for every block of its prefix."""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

_GROUP = 0x9E3779B97F4A7C15  # odd: different groups give different keys for the same hash


@dataclass(frozen=True, slots=True)
class Layout:
    """Cache groups of a hybrid model, as engines number them in events.

    The index counts blocks of `attention`. Every other group must be whole over its last `window` blocks before a
    boundary, or the engine cannot resume there: one block for a recurrent state, more for a sliding window.
    """

    attention: int = 0
    windows: tuple[tuple[int, int], ...] = ()  # (group, window in blocks)
    ignored: frozenset[int] = frozenset()  # groups that are never reused, such as the ring of a tail
    # Blocks per chunk of the tiers below the GPU, where events name the last block of a chunk only (vLLM offloading
    # with `blocks_per_chunk` and without `self_describing_kv_events`).
    chunk: int = 1

    @property
    def groups(self) -> frozenset[int]:
        """All groups that this layout knows."""
        return frozenset({self.attention, *(group for group, _ in self.windows)}) | self.ignored


@dataclass(frozen=True)
class Chain:
    """Prefix keys of one prompt.

    `keys` (n,) are those of the attention group; `windows` the keys (n,) of every other group that must be restored,
    with its window. `tokens` is the length of the prompt; block i ends at `ends[i]` tokens.
    """

    keys: npt.NDArray[np.uint64]
    block: int  # tokens per block; 0 when blocks differ, then `uneven` holds their ends
    tokens: int
    windows: tuple[tuple[npt.NDArray[np.uint64], int], ...] = ()
    uneven: npt.NDArray[np.int64] | None = None
    chunk: int = 1  # of the layout

    @cached_property
    def ends(self) -> npt.NDArray[np.int64]:
        """Tokens (n + 1,) before each block and after the last."""
        if self.uneven is not None:
            return self.uneven
        return np.arange(len(self.keys) + 1, dtype=np.int64) * self.block


def sampled(chain: Chain, sample: int) -> Chain:
    """The blocks of `chain` that an index keeps which samples one block in `sample`."""
    kept = np.flatnonzero(is_kept(chain.keys, sample))
    ends = np.concatenate((np.zeros(1, np.int64), chain.ends[kept + 1]))
    return Chain(chain.keys[kept], 0, chain.tokens, uneven=ends)


def is_kept(keys: npt.NDArray[np.uint64], sample: int) -> npt.NDArray[np.bool_]:
    """Which keys (n,) a sampling index keeps: decided by the key alone, so events and prompts agree."""
    kept: npt.NDArray[np.bool_] = keys & np.uint64(sample - 1) == 0
    return kept


def keyed(hashes: npt.NDArray[np.uint64], group: int) -> npt.NDArray[np.uint64]:
    """Index keys of block hashes (n,) of one cache group: the same hash never has one key in two groups."""
    return hashes ^ np.uint64(group_mask(group)) if group else hashes


def group_mask(group: int) -> int:
    """What the keys of a group are xor-ed with; 0 for group 0."""
    return group * _GROUP & (1 << 64) - 1


def as_keys(hashes: list[int]) -> npt.NDArray[np.uint64]:
    """Block hashes as engines print them, signed or unsigned, as (n,) unsigned 64-bit words."""
    for form in "Qq":
        try:
            return np.frombuffer(array(form, hashes), np.uint64)
        except OverflowError:
            continue
    return np.array([value % (1 << 64) for value in hashes], np.uint64)  # both at once


def chain_of_hashes(hashes: npt.NDArray[np.uint64], block: int, tokens: int, layout: Layout = Layout()) -> Chain:
    """Chain of a prompt of `tokens` tokens from the hashes (n,) of its full blocks.

    An engine always computes the last token itself, so a block that ends with the prompt is never a hit.
    """
    usable = min(len(hashes), max(tokens - 1, 0) // block)
    hashes = hashes[:usable]
    windows = tuple((keyed(hashes, group), window) for group, window in layout.windows)
    return Chain(keyed(hashes, layout.attention), block, tokens, windows, chunk=layout.chunk)
