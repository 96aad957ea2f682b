"""KV events over ZeroMQ with the engines' own hashes, the replay socket, and the fs tier as files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
import zmq
import zmq.asyncio

from backends.simulator.hashes import sglang_chain, sglang_event_hash, vllm_chain, vllm_event_hash
from tests.support.simulator import Sim, simulator

PROMPT = "water and steel " * 40


@asynccontextmanager
async def subscriber(sim: Sim) -> AsyncIterator[Any]:
    """A function that waits for the next batch: (sequence, events)."""
    context = zmq.asyncio.Context()
    socket = context.socket(zmq.SUB)
    monitor = socket.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
    socket.subscribe(b"")
    socket.connect(f"tcp://127.0.0.1:{sim.server.kv_port}")

    async def batch() -> tuple[int, list[dict[str, Any]]]:
        _, sequence, payload = await asyncio.wait_for(socket.recv_multipart(), 5)
        _, events, rank = msgspec.msgpack.decode(payload)
        assert rank == 0
        return int.from_bytes(sequence, "big"), events

    try:
        await asyncio.wait_for(monitor.recv_multipart(), 30)
        await asyncio.sleep(0.1)  # until the subscription, which follows the handshake, has arrived
        yield batch
    finally:
        socket.disable_monitor()
        monitor.close(linger=0)
        socket.close(linger=0)
        context.term()


async def complete(sim: Sim, **fields: Any) -> Any:
    body = {"model": "sim", "prompt": PROMPT, "max_tokens": 1, **fields}
    return await (await sim.post("/v1/completions", body)).json()


async def tokens_of(sim: Sim) -> list[int]:
    answer = await sim.post("/tokenize", {"prompt": PROMPT})
    return (await answer.json())["tokens"]


async def test_vllm_events_carry_the_engines_hashes() -> None:
    async with simulator("vllm", kv_events=0) as sim, subscriber(sim) as batch:
        tokens = await tokens_of(sim)
        await complete(sim, cache_salt="s")
        sequence, (stored,) = await batch()
        assert sequence == 0
        assert stored["block_hashes"] == [vllm_event_hash(d) for d in vllm_chain(tokens, 16, "s")]
        assert stored["token_ids"] == tokens[: len(tokens) // 16 * 16]
        assert list(stored) == [
            "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium", "lora_name",
            "extra_keys", "group_idx", "kv_cache_spec_kind",
        ]  # fmt: skip
        assert stored["extra_keys"][:2] == [["s"], None]
        assert (stored["medium"], stored["parent_block_hash"], stored["block_size"]) == ("GPU", None, 16)
        await sim.post("/reset_prefix_cache", {})
        await complete(sim)
        sequence, events = await batch()
        assert (sequence, events[0]) == (1, {"type": "AllBlocksCleared"})


async def test_vllm_lower_tiers_are_placeholders(tmp_path: Path) -> None:
    async with simulator("vllm", kv_events=0, fs_root=tmp_path) as sim, subscriber(sim) as batch:
        hashes = [vllm_event_hash(d) for d in vllm_chain(await tokens_of(sim), 16)]
        await complete(sim)
        await complete(sim, prompt="other")
        events: list[dict[str, Any]] = []
        while not {"CPU", "STORAGE"} <= {event["medium"] for event in events}:
            events += (await batch())[1]
        for medium in ("CPU", "STORAGE"):
            shown = [event for event in events if event["medium"] == medium]
            assert [event["block_hashes"] for event in shown] == [[value] for value in hashes]
            assert all(event["token_ids"] == [] and event["block_size"] == 0 for event in shown)


async def test_sglang_events_are_joined_and_signed() -> None:
    async with simulator("sglang", kv_events=0, profile="h200", time_scale=100) as sim, subscriber(sim) as batch:
        tokens = await tokens_of(sim)
        await complete(sim)
        _, events = await batch()
        assert [event["medium"] for event in events] == ["GPU", "CPU_PINNED"]
        for event in events:
            assert event["block_hashes"] == [sglang_event_hash(d) for d in sglang_chain(tokens, 64)]
            assert event["token_ids"] == tokens[: len(tokens) // 64 * 64]
        assert list(events[0]) == [
            "type", "block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium",
        ]  # fmt: skip


async def test_replay_from_a_sequence_number() -> None:
    async with simulator("sglang", kv_events=0, block_tokens=16) as sim:
        for prompt in ("river " * 20, "dam " * 20, "gate " * 20):
            await complete(sim, prompt=prompt)
        context = zmq.asyncio.Context()
        socket = context.socket(zmq.DEALER)
        socket.connect(f"tcp://127.0.0.1:{sim.server.replay_port}")
        await socket.send_multipart([b"", (1).to_bytes(8, "big")])
        got = [await asyncio.wait_for(socket.recv_multipart(), 5) for _ in range(3)]
        assert [frames[2] for frames in got] == [(1).to_bytes(8, "big"), (2).to_bytes(8, "big"), b"\xff" * 8]
        assert got[2] == [b"", b"", b"\xff" * 8, b""]
        socket.close(linger=0)
        context.term()


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_files_are_named_as_the_engine_names_them(engine: str, tmp_path: Path) -> None:
    async with simulator(engine, fs_root=tmp_path, model="org/sim", block_tokens=16) as sim:
        tokens = (await (await sim.post("/tokenize", {"prompt": PROMPT})).json())["tokens"]
        await complete(sim, model="org/sim")
        await complete(sim, model="org/sim", prompt="other")  # the step in which the writes are seen to be done
    names = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*.bin"))
    if engine == "vllm":
        digests = [digest.hex() for digest in vllm_chain(tokens, 16)]
        folder = next(path.parent.name for path in tmp_path.glob("*/config.json"))
        assert folder.startswith("org_sim_")
        assert names == sorted(f"{folder}_r0/{d[:3]}/{d[3:5]}_g0/{d}.bin" for d in digests)
    else:
        assert names == sorted(f"{d.hex()}_org-sim_0_1.bin" for d in sglang_chain(tokens, 16))
    assert not list(tmp_path.rglob("*.tmp"))


async def test_another_server_on_the_same_files_hits(tmp_path: Path) -> None:
    async with simulator("vllm", fs_root=tmp_path) as first:
        await complete(first)
        await complete(first, prompt="other")
    async with simulator("vllm", fs_root=tmp_path) as second:
        tokens = await tokens_of(second)
        answer = await complete(second)
        assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == len(tokens) // 16 * 16
        assert (await second.state())["counters"]["cached_fs"] == len(tokens) // 16 * 16
        refused = await complete(second, prompt=PROMPT, cache_salt="x", kv_transfer_params={"kv_load_tiers": []})
        assert refused["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
