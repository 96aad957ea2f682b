"""LMCache chunk hashes (multi-process mode): blake3 over the parent and the chunk's token ids, chained.

The whole parent digest stands before the token ids, which are 4-byte big-endian words. Before the first chunk stands
the hash of the word 0 (8 bytes) and the single token 0. The salt is no part of the
hash but of the key beside it. Source: lmcache 0.5.6, `TokenHasher`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import blake3
import numpy as np
import numpy.typing as npt

from tiering.hashing.scheme import PLAIN, Extras, Tokens

_PREFIX_OF_ROOT = (0).to_bytes(8, "big", signed=True)


@dataclass(frozen=True, slots=True)
class LmcacheScheme:
    """One server's configuration: `--chunk-size`."""

    block: int = 256

    def digests(self, tokens: Tokens, extras: Extras = PLAIN, known: Sequence[bytes] = ()) -> list[bytes]:  # noqa: ARG002
        """Digests of all full chunks of `tokens` (n,); those in `known` are taken over. `extras` take no part."""
        data = memoryview(tokens.astype(">u4").tobytes())
        chunk = 4 * self.block
        digests = list(known)
        previous = digests[-1] if digests else blake3.blake3(_PREFIX_OF_ROOT + bytes(4)).digest()
        for at in range(len(digests) * chunk, len(data) - chunk + 1, chunk):
            previous = blake3.blake3(previous + data[at : at + chunk]).digest()
            digests.append(previous)
        return digests

    def hashes(self, digests: Sequence[bytes]) -> npt.NDArray[np.uint64]:
        """First 8 bytes (m,) of each digest: LMCache itself keys by the whole digest."""
        return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 4)[:, 0].astype(np.uint64)
