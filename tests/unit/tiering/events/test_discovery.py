from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tiering.events.discovery import Source, reachable, sglang_sources, vllm_sources


def told(body: Any) -> bytes:
    return json.dumps(body).encode()


def test_vllm_names_one_publisher_per_rank() -> None:
    body = {
        "0": {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:15557",
              "replay_endpoint": "tcp://127.0.0.1:15558", "topic": "kv@a"},
        "1": {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:15559", "topic": ""},
        "2": {"enable_kv_cache_events": False, "publisher": "null", "endpoint": "tcp://*:1"},
    }  # fmt: skip
    assert vllm_sources("p/0", "http://10.0.0.7:8000", told(body)) == [
        Source("p/0", 0, "tcp://10.0.0.7:15557", "tcp://10.0.0.7:15558", "kv@a"),
        Source("p/0", 1, "tcp://10.0.0.7:15559"),
    ]


def test_sglang_counts_ports_from_its_bases() -> None:
    info = {"kv_events": {"publisher": "zmq", "endpoint_host": "*", "endpoint_port_base": 5557, "topic": "kv",
                          "block_size": 64, "dp_size": 2, "replay_endpoint_port_base": 6000}}  # fmt: skip
    assert sglang_sources("p/1", "http://[fd00::5]:30000", told(info)) == [
        Source("p/1", 0, "tcp://[fd00::5]:5557", "tcp://[fd00::5]:6000", "kv", "sglang", 64),
        Source("p/1", 1, "tcp://[fd00::5]:5558", "tcp://[fd00::5]:6001", "kv", "sglang", 64),
    ]


@pytest.mark.parametrize("info", [{}, {"kv_events": None}, {"kv_events": {"publisher": "null"}}])
def test_an_engine_without_events_has_no_source(info: dict) -> None:
    assert sglang_sources("p/0", "http://h:1", told(info)) == []


ENTRY = {"enable_kv_cache_events": True, "publisher": "zmq", "endpoint": "tcp://*:5557"}
PORTS = {"publisher": "zmq", "endpoint_port_base": 5557}


@pytest.mark.parametrize(
    ("read", "body"),
    [
        *((read, body) for read in (vllm_sources, sglang_sources) for body in
          (b"", b"no", b"[]", b"null", b"7", b'{"0":', b"\xff", b"[" * 100_000)),
        *((vllm_sources, told({rank: entry})) for rank, entry in (
            ("a", ENTRY), ("-1", ENTRY), ("1024", ENTRY), ("0", None), ("0", []), ("0", {**ENTRY, "endpoint": 5}),
            ("0", {**ENTRY, "endpoint": None}), ("0", {**ENTRY, "topic": ["kv"]}), ("0", {**ENTRY, "topic": "\ud800"}),
            ("0", {**ENTRY, "replay_endpoint": 7}))),
        *((sglang_sources, told({"kv_events": entry})) for entry in (
            [], "zmq", {**PORTS, "endpoint_port_base": "5557"}, {**PORTS, "endpoint_port_base": 1e9},
            {**PORTS, "dp_size": 10**9}, {**PORTS, "dp_size": -1}, {**PORTS, "block_size": "x"},
            {**PORTS, "replay_endpoint_port_base": -5}, {**PORTS, "endpoint_host": {}})),
    ],
)  # fmt: skip
def test_an_odd_answer_is_refused_whole(read: Callable[[str, str, bytes], Sequence[Source]], body: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        read("p/0", "http://h:1", body)


@pytest.mark.parametrize(
    ("endpoint", "seen"),
    [("tcp://*:5", "tcp://host:5"), ("tcp://0.0.0.0:5", "tcp://host:5"), ("tcp://[::]:5", "tcp://host:5"),
     ("tcp://127.0.0.1:5", "tcp://host:5"), ("tcp://[::ffff:127.0.0.1]:5", "tcp://host:5"),
     ("tcp://[::ffff:10.1.2.3]:5", "tcp://10.1.2.3:5"), ("tcp://10.1.2.3:5", "tcp://10.1.2.3:5"),
     ("ipc:///run/kv", "ipc:///run/kv")],
)  # fmt: skip
def test_addresses_are_those_a_subscriber_can_reach(endpoint: str, seen: str) -> None:
    assert reachable(endpoint, "http://host:8000") == seen
