from __future__ import annotations

import pytest

from tests.data.kv import golden_hashes, sglang_payloads, vllm_payloads
from tiering.chain import Layout
from tiering.events.decode import Decoder, Stored
from tiering.events.verify import GroupSeen
from tiering.hashing.sglang import SglangScheme
from tiering.hashing.vllm import VllmScheme
from tiering.registration import detect, layout_of

BIGRAM = golden_hashes("sglang")


def roots(payloads: list[tuple[int, bytes]], engine: str) -> list[Stored]:
    events = [event for _, payload in payloads for event in Decoder(engine).decode(payload).events]
    return [event for event in events if isinstance(event, Stored) and event.tokens and event.parent is None]


def test_algorithm_and_seed_are_read_off_captured_events() -> None:
    found = {detect("vllm", event) for event in roots(vllm_payloads("vllm_events"), "vllm")}
    assert found == {VllmScheme(32, "sha256_cbor", "0"), VllmScheme(32, "sha256", "0")}
    assert {detect("sglang", event) for event in roots(sglang_payloads(), "sglang")} == {SglangScheme(16)}


def test_eagle_pages_are_recognised() -> None:
    case = next(case for case in BIGRAM["cases"] if case["name"] == "bigram_salted")
    tokens = BIGRAM["tokens"]
    pairs = [(tokens[i], tokens[i + 1]) for i in range(64)]
    hashes = [int.from_bytes(bytes.fromhex(digest)[:8], "big", signed=True) for digest in case["digests"][:4]]
    event = Stored(hashes, tokens=pairs, block_size=16, salt="tenant-a")
    assert detect("sglang", event) == SglangScheme(16, bigram=True)


def test_a_seed_nobody_named_is_not_found() -> None:
    scheme = VllmScheme(16, "sha256_cbor", "4711")
    tokens = list(range(40))
    import numpy as np

    hashes = scheme.hashes(scheme.digests(np.array(tokens, np.uint32))).tolist()
    event = Stored(hashes, tokens=tokens[:32], block_size=16)
    assert detect("vllm", event) is None
    assert detect("vllm", event, seeds=["4711"]) == scheme
    assert detect("vllm", Stored(hashes, tokens=tokens[:32], block_size=16, parent=1), seeds=["4711"]) is None


@pytest.mark.parametrize(
    ("groups", "layout"),
    [
        ({}, Layout()),
        ({0: GroupSeen("full_attention")}, Layout(0)),
        ({0: GroupSeen("mamba"), 1: GroupSeen("mla_attention"), 2: GroupSeen("mamba")}, Layout(1, ((0, 1), (2, 1)))),
        ({0: GroupSeen("full_attention"), 1: GroupSeen("sliding_window", 100)}, Layout(0, ((1, 4),))),
        ({0: GroupSeen("full_attention"), 1: GroupSeen("full_attention")}, Layout(0, ((1, 1 << 30),))),
        ({0: GroupSeen("full_attention"), 1: GroupSeen("cross_attention")}, Layout(0, (), frozenset({1}))),
        ({0: GroupSeen("full_attention"), 1: GroupSeen("of_tomorrow")}, Layout(0, ((1, 1),))),
    ],
)
def test_layouts_follow_the_kinds_of_groups(groups: dict[int, GroupSeen], layout: Layout) -> None:
    assert layout_of(groups, 32) == layout
    assert layout.groups >= groups.keys()
