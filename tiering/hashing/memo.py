"""Chains from token ids, with what earlier turns of a conversation computed."""

from __future__ import annotations

import xxhash

from tiering.chain import Chain, Layout, chain_of_hashes
from tiering.hashing.scheme import Extras, Scheme, Tokens
from tiering.memo import BoundedMemo

_STRIDE = 16  # blocks between checkpoints
_ATTEMPTS = 6  # checkpoints looked for, each half as far: what is missed is hashed again


class ChainHasher:
    """Chains under one scheme and one layout of cache groups.

    Digests are remembered at checkpoints, keyed by a cheap hash of all ids before: a further turn costs one pass of
    that hash, and the engine's hash over its new blocks only.
    """

    __slots__ = ("_layout", "_memo", "_scheme")

    def __init__(self, scheme: Scheme, layout: Layout, *, memo_blocks: int = 200_000) -> None:
        self._scheme = scheme
        self._layout = layout
        self._memo: BoundedMemo[int, list[bytes]] = BoundedMemo(memo_blocks)

    @property
    def scheme(self) -> Scheme:
        """The scheme of these chains."""
        return self._scheme

    @property
    def layout(self) -> Layout:
        """Cache groups of these chains."""
        return self._layout

    def chain(self, tokens: Tokens, extras: Extras) -> Chain:
        """Chain of a prompt of `tokens` (n,)."""
        seed = xxhash.xxh3_64_intdigest(repr(extras).encode())
        data = memoryview(tokens.tobytes())
        stride = _STRIDE * self._scheme.block
        checkpoint = len(tokens) // stride * stride
        known = self._known(data, checkpoint, seed)
        digests = self._scheme.digests(tokens, extras, known)
        if checkpoint and len(known) * self._scheme.block < checkpoint:
            kept = digests[: checkpoint // self._scheme.block]
            self._memo.put(_key(data, checkpoint, seed), kept, len(kept))
        return chain_of_hashes(self._scheme.hashes(digests), self._scheme.block, len(tokens), self._layout)

    def _known(self, data: memoryview, checkpoint: int, seed: int) -> list[bytes]:
        stride = _STRIDE * self._scheme.block
        for _ in range(_ATTEMPTS):
            if not checkpoint:
                break
            known = self._memo.get(_key(data, checkpoint, seed))
            if known is not None:
                return known
            checkpoint = checkpoint // 2 // stride * stride
        return []


def _key(data: memoryview, checkpoint: int, seed: int) -> int:
    return xxhash.xxh3_64_intdigest(data[: 4 * checkpoint], seed)
