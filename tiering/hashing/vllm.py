"""vLLM block hashes: H((parent digest, token ids, extra keys)), chained.

H is SHA-256 over canonical CBOR (`sha256_cbor`) or over a pickle (`sha256`, the default, bound to CPython). Before the
first block stands H(seed): PYTHONHASHSEED of the server, or "vllm-none-hash" when that is not set. Events carry the
last 8 bytes of a digest, big-endian, unsigned. Source: vllm/v1/core/kv_cache_utils.py, 0.26 to 0.33.
"""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import cbor2
import numpy as np
import numpy.typing as npt

from tiering.hashing.scheme import PLAIN, Extras, Tokens

DEFAULT_SEED = "vllm-none-hash"
Algorithm = Literal["sha256", "sha256_cbor"]
Keys = tuple[tuple[Any, ...], ...] | None


def _sha256(value: object) -> bytes:
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def _sha256_cbor(value: object) -> bytes:
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


_ALGORITHMS: Mapping[Algorithm, Callable[[object], bytes]] = {"sha256": _sha256, "sha256_cbor": _sha256_cbor}


@dataclass(frozen=True, slots=True)
class VllmScheme:
    """One server's configuration: `--block-size`, `--prefix-caching-hash-algo`, PYTHONHASHSEED."""

    block: int
    algorithm: Algorithm = "sha256"
    seed: str = DEFAULT_SEED

    def digests(self, tokens: Tokens, extras: Extras = PLAIN, known: Sequence[bytes] = ()) -> list[bytes]:
        """Digests of all full blocks of `tokens` (n,); those in `known` are taken over."""
        digest_of, block = _ALGORITHMS[self.algorithm], self.block
        digests = list(known)
        previous = digests[-1] if digests else digest_of(self.seed)
        plain = extras == PLAIN
        ids = tokens[len(digests) * block :].tolist()
        start = len(digests) * block
        for at in range(0, len(ids) - block + 1, block):
            keys = None if plain else block_keys(extras, start + at, start + at + block)
            previous = digest_of((previous, tuple(ids[at : at + block]), keys))
            digests.append(previous)
        return digests

    def hashes(self, digests: Sequence[bytes]) -> npt.NDArray[np.uint64]:
        """Unsigned last 8 bytes (m,) of each digest."""
        return np.frombuffer(b"".join(digests), ">u8").reshape(-1, 4)[:, 3].astype(np.uint64)


def block_keys(extras: Extras, start: int, end: int) -> Keys:
    """Tagged extra keys of the block of tokens [start, end): adapter, media, and on the first block the salt."""
    keys: list[tuple[Any, ...]] = []
    if extras.lora_name:
        keys.append(("lora", extras.lora_name, extras.lora_path))
    keys += [
        ("mm", item.identifier, item.offset - start)
        for item in extras.media
        if item.offset < end and item.offset + item.length > start
    ]
    if start == 0 and extras.salt:
        keys.append(("cache_salt", extras.salt))
    return tuple(keys) or None
