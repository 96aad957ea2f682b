"""Block hashes as the real engines chain them, so that events, files and `/tokenize` agree with one another.

vLLM: SHA-256 of canonical CBOR of (parent digest, token ids, extra keys), events carry the last 8 bytes unsigned.
SGLang: SHA-256 of parent digest and little-endian u32 tokens, events carry the first 8 bytes signed.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Sequence

import cbor2

VLLM_SEED = "vllm-none-hash"
_SGLANG_SALT_TAG = b"sglang-cache-salt-v1\0"


def vllm_chain(tokens: Sequence[int], block: int, salt: str = "", seed: str = VLLM_SEED) -> list[bytes]:
    """32-byte digests of the full blocks of `tokens` under `sha256_cbor`."""
    parent = hashlib.sha256(cbor2.dumps(seed, canonical=True)).digest()
    extra = (("cache_salt", salt),) if salt else None
    chain = []
    for start in range(0, len(tokens) - block + 1, block):
        value = (parent, tuple(tokens[start : start + block]), extra)
        parent = hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()
        extra = None
        chain.append(parent)
    return chain


def sglang_chain(tokens: Sequence[int], block: int, salt: str = "") -> list[bytes]:
    """32-byte digests of the full pages of `tokens`."""
    parent = hashlib.sha256(_SGLANG_SALT_TAG + salt.encode()).digest() if salt else b""
    layout = struct.Struct(f"<{block}I")
    chain = []
    for start in range(0, len(tokens) - block + 1, block):
        parent = hashlib.sha256(parent + layout.pack(*tokens[start : start + block])).digest()
        chain.append(parent)
    return chain


def vllm_event_hash(digest: bytes) -> int:
    """The unsigned 64-bit number of a block in vLLM's events."""
    return int.from_bytes(digest[-8:], "big")


def sglang_event_hash(digest: bytes) -> int:
    """The signed 64-bit number of a page in SGLang's events."""
    return int.from_bytes(digest[:8], "big", signed=True)
