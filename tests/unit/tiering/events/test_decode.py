from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.kv import vllm_payloads
from tiering.events.decode import BadEventError, Cleared, Decoder, Removed, Stored


def decoded(*events: object, engine: str = "vllm") -> tuple:
    return Decoder(engine).decode(msgspec.msgpack.encode([12.5, list(events), 3])).events


def test_a_batch_has_time_events_and_rank() -> None:
    batch = Decoder("vllm").decode(msgspec.msgpack.encode([12.5, [{"type": "AllBlocksCleared"}], 3]))
    assert (batch.at, batch.rank, batch.events) == (12.5, 3, (Cleared(),))
    assert Decoder("vllm").decode(msgspec.msgpack.encode([12.5, []])).rank is None


def test_maps() -> None:
    stored, removed = decoded(
        {"type": "BlockStored", "block_hashes": [1, 2], "parent_block_hash": 9, "token_ids": [5, 6], "block_size": 1,
         "lora_id": None, "medium": "GPU", "lora_name": "l", "extra_keys": [["salt"], None], "group_idx": 2,
         "kv_cache_spec_kind": "mamba", "session_id": "s", "field_of_tomorrow": 1},
        {"type": "BlockRemoved", "block_hashes": [-3], "medium": "CPU", "group_idx": 1},
    )  # fmt: skip
    assert stored == Stored([1, 2], "gpu", 2, [5, 6], 9, 1, [["salt"], None], None, "l", "mamba")
    assert removed == Removed([-3], "host", 1)


def test_arrays_of_seven_and_nine_fields() -> None:
    seven = ["BlockStored", [1], None, [5], 1, None, "GPU"]
    nine = [*seven, "adapter", [["salt"]]]
    assert decoded(seven, nine) == (
        Stored([1], "gpu", 0, [5], None, 1),
        Stored([1], "gpu", 0, [5], None, 1, [["salt"]], None, "adapter"),
    )
    assert decoded([*seven, "salt", "session", "adapter"], engine="sglang") == (
        Stored([1], "gpu", 0, [5], None, 1, (), "salt", "adapter"),
    )
    assert decoded(["BlockRemoved", [1, 2], "FS"], ["BlockRemoved", [1]], ["AllBlocksCleared"]) == (
        Removed([1, 2], "fs"),
        Removed([1], "gpu"),
        Cleared(),
    )


@pytest.mark.parametrize(
    ("medium", "tier"),
    [(None, "gpu"), ("GPU", "gpu"), ("CPU", "host"), ("CPU_PINNED", "host"), ("FS", "fs"), ("STORAGE", "fs"),
     ("DISK", "fs"), ("EXTERNAL", "remote")],
)  # fmt: skip
def test_media_have_tiers(medium: str | None, tier: str) -> None:
    assert decoded({"type": "BlockRemoved", "block_hashes": [1], "medium": medium})[0].tier == tier


def test_an_unknown_medium_is_dropped_and_counted() -> None:
    body = msgspec.msgpack.encode([1.0, [{"type": "BlockRemoved", "block_hashes": [1], "medium": "TAPE"}], 0])
    batch = Decoder("vllm").decode(body)
    assert (batch.events, batch.unknown_media) == ((), 1)


def test_hashes_as_bytes_become_their_last_eight() -> None:
    digest = bytes(range(32))
    (stored,) = decoded({"type": "BlockStored", "block_hashes": [digest], "parent_block_hash": digest})
    assert stored.hashes == [int.from_bytes(digest[-8:], "big")]
    assert stored.parent == stored.hashes[0]


def test_events_of_lower_tiers_join_those_of_the_gpu_by_hash() -> None:
    events = [e for _, body in vllm_payloads("vllm_offload_events") for e in Decoder("vllm").decode(body).events]
    gpu = {h for e in events if isinstance(e, Stored) and e.tier == "gpu" for h in e.hashes}
    for tier in ("host", "fs"):
        below = [e for e in events if isinstance(e, Stored) and e.tier == tier]
        assert sum(len(gpu.intersection(e.hashes)) for e in below) > 0.8 * sum(len(e.hashes) for e in below) > 0


def test_placeholders_have_hashes_and_nothing_else() -> None:
    raw = {"type": "BlockStored", "block_hashes": [7], "parent_block_hash": None, "token_ids": [], "block_size": 0,
           "lora_id": None, "medium": "FS", "lora_name": None}  # fmt: skip
    assert decoded(raw) == (Stored([7], "fs"),)


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_any_bytes_are_a_batch_or_an_error(body: bytes) -> None:
    try:
        Decoder("vllm").decode(body)
    except BadEventError:
        return


@pytest.mark.parametrize(
    "value",
    [[], [1.0], [1.0, 5], [1.0, [5]], [1.0, [{"type": "Other"}]], [1.0, [{}]], [1.0, [[]]], "text",
     [1.0, [{"type": "BlockStored", "block_hashes": ["x"]}]],
     [1.0, [{"type": "BlockStored", "block_hashes": [1.5]}]], ["x", []], [1.0, [{"type": "BlockRemoved"}]],
     [1.0, [{"type": "BlockRemoved", "block_hashes": [1], "group_idx": -1}]],
     [1.0, [{"type": "BlockRemoved", "block_hashes": [1], "group_idx": 1 << 40}]],
     [1.0, [{"type": "BlockStored", "block_hashes": [1], "token_ids": 7}]],
     [1.0, [{"type": "BlockStored", "block_hashes": [1], "block_size": 1.5}]],
     [1.0, [{"type": "BlockStored", "block_hashes": [1], "extra_keys": [3]}]],
     [1.0, [{"type": "BlockStored", "block_hashes": [1], "cache_salt": 3}]]],
)  # fmt: skip
def test_wrong_shapes_are_errors(value: object) -> None:
    with pytest.raises(BadEventError):
        Decoder("vllm").decode(msgspec.msgpack.encode(value))
