"""KV events in the engines' own words, published over ZeroMQ with a replay socket."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec
import zmq
import zmq.asyncio

from backends.simulator.hashes import sglang_event_hash, vllm_event_hash
from backends.simulator.requests import Cleared, KvEvent, Removed, Stored

_BUFFER_STEPS = 10_000
_END = (-1).to_bytes(8, "big", signed=True)
_VLLM_MEDIA = {"gpu": "GPU", "host": "CPU", "fs": "STORAGE"}
_SGLANG_MEDIA = {"gpu": "GPU", "host": "CPU_PINNED"}  # files are invisible


def vllm_events(events: Iterable[KvEvent], block: int) -> Iterator[dict[str, Any]]:
    """Lower tiers come as placeholders: one hash each, without tokens; files are never reported as removed."""
    for event in events:
        if isinstance(event, Cleared):
            yield {"type": "AllBlocksCleared"}
        elif isinstance(event, Removed):
            if event.tier != "fs":
                hashes = [vllm_event_hash(digest) for digest in event.blocks]
                medium = _VLLM_MEDIA[event.tier]
                yield {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium, "group_idx": 0}
        else:
            yield from _vllm_stored(event, block)


def _vllm_stored(event: Stored, block: int) -> Iterator[dict[str, Any]]:
    full = event.tier == "gpu"
    groups = [list(event.blocks)] if full else [[digest] for digest in event.blocks]
    for digests in groups:
        body: dict[str, Any] = {
            "type": "BlockStored",
            "block_hashes": [vllm_event_hash(digest) for digest in digests],
            "parent_block_hash": vllm_event_hash(event.parent) if full and event.parent is not None else None,
            "token_ids": list(event.tokens) if full else [],
            "block_size": block if full else 0,
            "lora_id": None,
            "medium": _VLLM_MEDIA[event.tier],
            "lora_name": None,
        }
        if full:
            first = [event.salt] if event.salt and event.parent is None else None
            body["extra_keys"] = [first, *(None for _ in digests[1:])]
        body |= {"group_idx": 0, "kv_cache_spec_kind": "full_attention"}
        yield body | ({"locality": "LOCAL"} if event.tier == "fs" else {})


def sglang_events(events: Iterable[KvEvent], block: int) -> Iterator[dict[str, Any]]:
    """Consecutive pages of one medium come as one event; nothing tells of files."""
    shown = (event for event in events if isinstance(event, Cleared) or event.tier in _SGLANG_MEDIA)
    for run in _joined(shown):
        if isinstance(run, Cleared):
            yield {"type": "AllBlocksCleared"}
            continue
        hashes = [sglang_event_hash(digest) for digest in run.blocks]
        medium = _SGLANG_MEDIA[run.tier]
        if isinstance(run, Removed):
            yield {"type": "BlockRemoved", "block_hashes": hashes, "medium": medium}
            continue
        body = {
            "type": "BlockStored",
            "block_hashes": hashes,
            "parent_block_hash": sglang_event_hash(run.parent) if run.parent is not None else None,
            "token_ids": list(run.tokens),
            "block_size": block,
            "lora_id": None,
            "medium": medium,
        }
        yield body | ({"cache_salt": run.salt} if run.salt else {})


def _joined(events: Iterable[KvEvent]) -> Iterator[KvEvent]:
    """Join neighbours: removals of one tier, and stores that continue each other's chain."""
    held: KvEvent | None = None
    for event in events:
        joined = _join(held, event)
        if joined is not None:
            held = joined
            continue
        if held is not None:
            yield held
        held = event
    if held is not None:
        yield held


def _join(first: KvEvent | None, second: KvEvent) -> KvEvent | None:
    if isinstance(first, Removed) and isinstance(second, Removed) and first.tier == second.tier:
        return Removed(first.tier, (*first.blocks, *second.blocks))
    if (
        isinstance(first, Stored)
        and isinstance(second, Stored)
        and first.tier == second.tier
        and second.parent == first.blocks[-1]
    ):
        blocks, tokens = (*first.blocks, *second.blocks), (*first.tokens, *second.tokens)
        return Stored(first.tier, blocks, first.parent, tokens, first.salt)
    return None


class Publisher:
    """One PUB socket and one replay socket. Sequence numbers start at 0 and have no gaps."""

    def __init__(self, host: str, port: int, topic: str) -> None:
        self._context = zmq.asyncio.Context()
        self._plain: zmq.Context[zmq.Socket[bytes]] = zmq.Context.shadow(self._context.underlying)
        self._topic = topic.encode()
        self._sequence = 0
        self._buffer: deque[tuple[int, bytes]] = deque(maxlen=_BUFFER_STEPS)
        self._pub = self._plain.socket(zmq.PUB)  # never blocks: it drops what subscribers do not take
        self.port = _bind(self._pub, host, port)
        self._replay = self._context.socket(zmq.ROUTER)
        self.replay_port = _bind(self._replay, host, port + 1 if port else 0)

    def publish(self, events: list[dict[str, Any]], now_s: float) -> None:
        """Send one batch; `now_s` is Unix time."""
        payload = msgspec.msgpack.encode([now_s, events, 0])
        self._buffer.append((self._sequence, payload))
        self._pub.send_multipart([self._topic, self._sequence.to_bytes(8, "big"), payload])
        self._sequence += 1

    @property
    def published(self) -> int:
        """Batches sent so far."""
        return self._sequence

    async def serve_replay(self) -> None:
        """Answer replay requests until cancelled: everything from a sequence number on, then an end mark."""
        while True:
            peer, *rest = await self._replay.recv_multipart()
            if not rest or len(rest[-1]) != 8:
                continue
            start = int.from_bytes(rest[-1], "big")
            for sequence, payload in tuple(self._buffer):
                if sequence >= start:
                    await self._replay.send_multipart([peer, b"", self._topic, sequence.to_bytes(8, "big"), payload])
            await self._replay.send_multipart([peer, b"", b"", _END, b""])

    def close(self) -> None:
        """Close both sockets."""
        self._pub.close(linger=0)
        self._replay.close(linger=0)
        self._context.term()


def _bind(socket: zmq.Socket[Any], host: str, port: int) -> int:
    socket.bind(f"tcp://{host}:{port or '*'}")
    return int(socket.getsockopt_string(zmq.LAST_ENDPOINT).rsplit(":", 1)[1])
