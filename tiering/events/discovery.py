"""Where the KV events of a replica come from, as the engines themselves say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

RANKS = 1024  # of one replica, at most: an engine that says more is not believed


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


_Rank = Annotated[int, msgspec.Meta(ge=0, lt=RANKS)]
_Port = Annotated[int, msgspec.Meta(ge=0, le=65535)]


class _Publisher(msgspec.Struct):
    enable_kv_cache_events: bool = False
    publisher: str | None = None
    endpoint: str = ""
    replay_endpoint: str | None = None
    topic: str | None = None


class _Ports(msgspec.Struct):
    publisher: str | None = None
    endpoint_host: str | None = None
    endpoint_port_base: _Port | None = None
    replay_endpoint_port_base: _Port | None = None
    topic: str | None = None
    block_size: int | None = None
    dp_size: Annotated[int, msgspec.Meta(ge=0, le=RANKS)] | None = None


class _ServerInfo(msgspec.Struct):
    kv_events: _Ports | None = None


_by_rank = msgspec.json.Decoder(dict[_Rank, _Publisher])
_info = msgspec.json.Decoder(_ServerInfo)


def vllm_sources(replica: str, url: str, body: bytes) -> list[Source]:
    """From `GET /kv_event_sources` of vLLM: one entry per DP rank. `url` is the replica's base URL.

    Raises ValueError or RecursionError for an answer of another shape.
    """
    return [
        Source(
            replica,
            rank,
            reachable(entry.endpoint, url),
            reachable(entry.replay_endpoint, url) if entry.replay_endpoint else None,
            entry.topic or "",
        )
        for rank, entry in _by_rank.decode(body).items()
        if entry.enable_kv_cache_events and entry.publisher == "zmq"
    ]


def sglang_sources(replica: str, url: str, body: bytes) -> list[Source]:
    """From `GET /server_info` of SGLang: the ports of rank r are the bases plus r. Raises as `vllm_sources` does."""
    entry = _info.decode(body).kv_events
    if entry is None or entry.publisher != "zmq" or not entry.endpoint_port_base:
        return []
    host = entry.endpoint_host or "*"
    base, replay = entry.endpoint_port_base, entry.replay_endpoint_port_base
    return [
        Source(
            replica,
            rank,
            reachable(f"tcp://{host}:{base + rank}", url),
            reachable(f"tcp://{host}:{replay + rank}", url) if replay else None,
            entry.topic or "",
            "sglang",
            entry.block_size or 0,
        )
        for rank in range(entry.dp_size or 1)
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
