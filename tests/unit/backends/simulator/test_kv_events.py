"""Events in the engines' words, held against captured ones."""

from __future__ import annotations

from backends.simulator.kv_events import sglang_events, vllm_events
from backends.simulator.requests import Cleared, KvEvent, Removed, Stored

A, B, C = (bytes([i]) * 32 for i in (1, 2, 255))
GPU = Stored("gpu", (A, B), None, (1, 2, 3, 4), "salt")


def test_vllm_full_events() -> None:
    assert list(vllm_events([GPU], 2)) == [
        {
            "type": "BlockStored",
            "block_hashes": [0x0101010101010101, 0x0202020202020202],
            "parent_block_hash": None,
            "token_ids": [1, 2, 3, 4],
            "block_size": 2,
            "lora_id": None,
            "medium": "GPU",
            "lora_name": None,
            "extra_keys": [["salt"], None],
            "group_idx": 0,
            "kv_cache_spec_kind": "full_attention",
        }
    ]
    later = next(iter(vllm_events([Stored("gpu", (B,), A, (3, 4), "salt")], 2)))
    assert (later["parent_block_hash"], later["extra_keys"]) == (0x0101010101010101, [None])


def test_vllm_other_events() -> None:
    events: list[KvEvent] = [Stored("fs", (A, B), C), Removed("gpu", (A,)), Removed("host", (B,)), Removed("fs", (A,))]
    got = list(vllm_events([*events, Cleared()], 2))
    assert [(e["type"], e.get("medium"), e.get("locality")) for e in got] == [
        ("BlockStored", "STORAGE", "LOCAL"),
        ("BlockStored", "STORAGE", "LOCAL"),
        ("BlockRemoved", "GPU", None),
        ("BlockRemoved", "CPU", None),
        ("AllBlocksCleared", None, None),
    ]
    assert (got[0]["parent_block_hash"], got[0]["token_ids"], got[0]["block_size"]) == (None, [], 0)


def test_sglang_joins_what_continues() -> None:
    host = [Stored("host", (A,), None, (1, 2)), Stored("host", (B,), A, (3, 4)), Stored("host", (C,), None, (9, 9))]
    got = list(sglang_events([*host, Stored("fs", (A,), None)], 2))
    assert [e["block_hashes"] for e in got] == [[0x0101010101010101, 0x0202020202020202], [-1]]
    assert got[0]["token_ids"] == [1, 2, 3, 4]
    assert got[0]["medium"] == "CPU_PINNED"
    assert "cache_salt" not in got[0]


def test_sglang_salt_removals_and_clears() -> None:
    got = list(sglang_events([GPU, Removed("gpu", (A,)), Removed("gpu", (C,)), Removed("host", (A,)), Cleared()], 2))
    assert got[0]["cache_salt"] == "salt"
    assert got[1:] == [
        {"type": "BlockRemoved", "block_hashes": [0x0101010101010101, -1], "medium": "GPU"},
        {"type": "BlockRemoved", "block_hashes": [0x0101010101010101], "medium": "CPU_PINNED"},
        {"type": "AllBlocksCleared"},
    ]
