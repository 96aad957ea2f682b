"""Where the KV events of a replica come from, as the engines themselves say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Source:
    """The publisher of one DP rank of one replica."""

    replica: str
    rank: int
    endpoint: str
    replay_endpoint: str | None = None
    topic: str = ""
    engine: str = "vllm"  # whose field order events in array form have
    block_size: int = 0  # tokens, 0: not said


def vllm_sources(replica: str, url: str, body: Mapping[str, Any]) -> list[Source]:
    """From `GET /kv_event_sources` of vLLM: one entry per DP rank. `url` is the replica's base URL."""
    sources = []
    for rank, entry in body.items():
        if not entry.get("enable_kv_cache_events") or entry.get("publisher") != "zmq":
            continue
        replay = entry.get("replay_endpoint")
        sources.append(
            Source(
                replica,
                int(rank),
                reachable(entry["endpoint"], url),
                reachable(replay, url) if replay else None,
                entry.get("topic") or "",
            )
        )
    return sources


def sglang_sources(replica: str, url: str, server_info: Mapping[str, Any]) -> list[Source]:
    """From `GET /server_info` of SGLang: the ports of rank r are the bases plus r."""
    entry = server_info.get("kv_events") or {}
    if entry.get("publisher") != "zmq" or not entry.get("endpoint_port_base"):
        return []
    host = entry.get("endpoint_host") or "*"
    replay = entry.get("replay_endpoint_port_base")
    return [
        Source(
            replica,
            rank,
            reachable(f"tcp://{host}:{entry['endpoint_port_base'] + rank}", url),
            reachable(f"tcp://{host}:{replay + rank}", url) if replay else None,
            entry.get("topic") or "",
            "sglang",
            entry.get("block_size") or 0,
        )
        for rank in range(entry.get("dp_size") or 1)
    ]


def reachable(endpoint: str, url: str) -> str:
    """`endpoint` as a subscriber sees it: "all addresses", or the engine's own loopback, become the replica's host.

    IPv4 addresses that a server bound through IPv6 are written plainly, which every libzmq understands.
    """
    if not endpoint.startswith("tcp://"):
        return endpoint
    host, _, port = endpoint.removeprefix("tcp://").rpartition(":")
    host = host.strip("[]").removeprefix("::ffff:")
    if host in {"*", "::", "0.0.0.0", "localhost", "::1"} or host.startswith("127."):  # noqa: S104 - compared, not bound
        host = urlsplit(url).hostname or host
    return f"tcp://[{host}]:{port}" if ":" in host else f"tcp://{host}:{port}"
