"""Block hashes as vLLM and SGLang compute them, and a check of captured KV events against them.

    python -m tests.engine.tools.blockhash vllm --block 32 --tokens 1,2,3,...    one hash per full block, as in events
    python -m tests.engine.tools.blockhash sglang --block 32 --tokens 1,2,3,...
    python -m tests.engine.tools.blockhash vllm --check events.jsonl             lines of kv_listen; 1 on a mismatch

Written apart from the gateway's own hashing, on purpose: a second opinion on what the engines do.

vLLM   digest = H((digest of the block before, (token ids...), extra)); before the first block stands H(seed).
       H is SHA-256 of canonical CBOR (sha256_cbor; needs cbor2) or of a pickle (sha256). seed is $PYTHONHASHSEED of the
       server, or "vllm-none-hash" when that is not set. extra is None, or (("cache_salt", salt),) on the first block.
       Events carry the last 8 bytes, unsigned.
SGLang digest = SHA-256(digest of the page before, then each token id as 4 bytes little-endian); before the first page
       stands nothing, or SHA-256 of a tag and the cache salt. Events carry the first 8 bytes, signed.
Only full blocks have a hash.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import pickle
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cbor2

Chain = Callable[..., list[bytes]]
SGLANG_SALT_TAG = b"sglang-cache-salt-v1\0"


def sha256_cbor(value: object) -> bytes:
    """vLLM's portable hash."""
    return hashlib.sha256(cbor2.dumps(value, canonical=True)).digest()


def sha256_pickle(value: object) -> bytes:
    """vLLM's default hash."""
    return hashlib.sha256(pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)).digest()


def blocks(tokens: Sequence[int], size: int) -> Iterator[tuple[int, ...]]:
    """The full blocks of a prompt."""
    return (tuple(tokens[i : i + size]) for i in range(0, len(tokens) - size + 1, size))


def vllm_chain(
    tokens: Sequence[int],
    size: int,
    *,
    seed: str = "0",
    salt: str | None = None,
    parent: bytes | None = None,
    digest: Callable[[object], bytes] = sha256_cbor,
) -> list[bytes]:
    """Full digests of the blocks of `tokens`; `parent` continues an earlier chain."""
    extra = (("cache_salt", salt),) if salt and parent is None else None
    previous = digest(seed) if parent is None else parent
    chain = []
    for block in blocks(tokens, size):
        previous = digest((previous, block, extra))
        extra = None
        chain.append(previous)
    return chain


def sglang_chain(
    tokens: Sequence[int], size: int, *, salt: str | None = None, parent: bytes | None = None
) -> list[bytes]:
    """Full digests of the pages of `tokens`; `parent` continues an earlier chain."""
    previous = parent or (hashlib.sha256(SGLANG_SALT_TAG + salt.encode()).digest() if salt else b"")
    chain = []
    for page in blocks(tokens, size):
        previous = hashlib.sha256(previous + b"".join(t.to_bytes(4, "little") for t in page)).digest()
        chain.append(previous)
    return chain


def vllm_event_hash(digest: bytes) -> int:
    """A digest as vLLM's events carry it."""
    return int.from_bytes(digest[-8:], "big")


def sglang_event_hash(digest: bytes) -> int:
    """A digest as SGLang's events carry it."""
    return int.from_bytes(digest[:8], "big", signed=True)


def event_salt(event: dict[str, Any]) -> str | None:
    """The salt that an event shows: SGLang has a field for it, vLLM lists it first among the first block's keys."""
    keys = (event.get("extra_keys") or [None])[0]
    return event.get("cache_salt") or (keys[0] if keys else None)


def check(path: Path, chain_of: Chain, event_hash: Callable[[bytes], int]) -> tuple[int, int, int]:
    """(matching, different, not checkable) BlockStored events. Parents must have been captured as well."""
    known: dict[int, bytes] = {}
    same = different = unknown = 0
    for line in path.read_text().splitlines():
        for event in json.loads(line)["events"]:
            if event["type"] != "BlockStored" or not event["token_ids"]:
                continue
            parent = event["parent_block_hash"]
            if parent is not None and parent not in known:
                unknown += 1
                continue
            chain = chain_of(event["token_ids"], event["block_size"], salt=event_salt(event), parent=known.get(parent))
            known.update((event_hash(d), d) for d in chain)
            if [event_hash(d) for d in chain] == event["block_hashes"]:
                same += 1
            else:
                different += 1
    return same, different, unknown


def main() -> None:
    """Compute or check, as the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("engine", choices=("vllm", "sglang"))
    parser.add_argument("--block", type=int, default=32, help="tokens per block (32)")
    parser.add_argument("--tokens", help="comma-separated token ids")
    parser.add_argument("--salt", help="cache salt of the request")
    parser.add_argument("--seed", default="0", help="vLLM: hash seed of the server (0)")
    parser.add_argument("--algo", default="sha256_cbor", choices=("sha256_cbor", "sha256"), help="vLLM (sha256_cbor)")
    parser.add_argument("--check", type=Path, metavar="FILE", help="compare with captured events")
    args = parser.parse_args()
    chain_of: Chain
    if args.engine == "vllm":
        digest = sha256_cbor if args.algo == "sha256_cbor" else sha256_pickle
        chain_of, event_hash = partial(vllm_chain, seed=args.seed, digest=digest), vllm_event_hash
    else:
        chain_of, event_hash = sglang_chain, sglang_event_hash

    if args.check:
        same, different, unknown = check(args.check, chain_of, event_hash)
        print(f"match {same}, mismatch {different}, parent not captured {unknown}")
        sys.exit(different > 0 or same == 0)
    if not args.tokens:
        parser.error("give --tokens or --check")
    for one in chain_of([int(t) for t in args.tokens.split(",")], args.block, salt=args.salt):
        print(event_hash(one), one.hex())


if __name__ == "__main__":
    main()
