"""SGLang page hashes: SHA-256 over the parent digest and the page's token ids as little-endian words, chained.

Nothing stands before the first page, or SHA-256 of a tag and the cache salt. With EAGLE a page is of overlapping pairs
of tokens. Events carry the first 8 bytes of a digest, big-endian, signed. An adapter does not take part in the hashes
of events in the default format. Source: sglang/srt/mem_cache/cpp_utils, 0.5.17 to 0.5.23.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tiering.hashing.scheme import PLAIN, Extras, Tokens

_SALT_TAG = b"sglang-cache-salt-v1\0"


@dataclass(frozen=True, slots=True)
class SglangScheme:
    """One server's configuration: `--page-size`, and whether it decodes with EAGLE (`bigram`)."""

    block: int
    bigram: bool = False

    def digests(self, tokens: Tokens, extras: Extras = PLAIN, known: Sequence[bytes] = ()) -> list[bytes]:
        """Digests of all full pages of `tokens` (n,); those in `known` are taken over."""
        words = tokens.astype("<u4")
        if self.bigram:
            words = np.stack((words[:-1], words[1:]), axis=1).reshape(-1)
        page = self.block * (8 if self.bigram else 4)
        data = memoryview(words.tobytes())
        digests = list(known)
        previous = digests[-1] if digests else _root(extras.salt)
        for at in range(len(digests) * page, len(data) - page + 1, page):
            digest = hashlib.sha256(previous)
            digest.update(data[at : at + page])
            previous = digest.digest()
            digests.append(previous)
        return digests

    def hashes(self, digests: Sequence[bytes]) -> npt.NDArray[np.uint64]:
        """First 8 bytes (m,) of each digest; what events print as a signed number is the same word."""
        return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 4)[:, 0].astype(np.uint64)


def _root(salt: str | None) -> bytes:
    return hashlib.sha256(_SALT_TAG + salt.encode()).digest() if salt else b""
