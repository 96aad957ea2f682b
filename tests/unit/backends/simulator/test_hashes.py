"""Block hashes equal those in captured KV events."""

from __future__ import annotations

import json
from pathlib import Path

from backends.simulator.hashes import sglang_chain, sglang_event_hash, vllm_chain, vllm_event_hash

VLLM = [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173, 3365, 3511, 308, 34519, 28, 7018, 411, 407, 19712, 8182, 2,
        198, 1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2]  # fmt: skip
SGLANG = [1, 617, 270, 203, 55, 543, 302, 77, 2, 203, 1, 321, 87, 361, 331, 88]
SGLANG_NEXT = [203, 615, 820, 2, 203, 1, 617, 270, 203, 317, 455, 2, 203, 1, 321, 87]


def test_vllm_first_block() -> None:
    assert [vllm_event_hash(digest) for digest in vllm_chain(VLLM, 32, seed="0")] == [15964129115742871280]


def test_sglang_pages() -> None:
    digests = sglang_chain(SGLANG + SGLANG_NEXT + [7], 16)
    assert [sglang_event_hash(digest) for digest in digests] == [7569061200362851798, -4729170011602502910]


def test_only_full_blocks_count_and_salt_changes_all() -> None:
    assert vllm_chain(VLLM[:31], 32) == []
    assert len(sglang_chain(SGLANG, 5)) == 3
    for chain in (vllm_chain, sglang_chain):
        plain, salted = chain(VLLM, 8), chain(VLLM, 8, "tenant")
        assert not set(plain) & set(salted)


def test_digests_of_the_engines_own_code() -> None:
    known = json.loads((Path(__file__).parents[3] / "data" / "kv" / "hashes.json").read_text("utf-8"))
    plain = [
        case
        for case in known["vllm"]["cases"]
        if case["algorithm"] == "sha256_cbor" and case["name"] in ("plain", "salted")
    ]
    assert len(plain) == 2
    for case in plain:
        got = vllm_chain(known["vllm"]["tokens"], known["vllm"]["block"], case["salt"] or "")
        assert [digest.hex() for digest in got] == case["digests"]
        assert [vllm_event_hash(digest) for digest in got] == case["hashes"]
    for case in known["sglang"]["cases"]:
        if not case["bigram"]:
            got = sglang_chain(known["sglang"]["tokens"], known["sglang"]["block"], case["salt"] or "")
            full = len(known["sglang"]["tokens"]) // known["sglang"]["block"]  # the rest is a page that is not full
            assert [digest.hex() for digest in got] == case["digests"][:full]
