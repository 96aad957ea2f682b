"""What a started gateway has loaded: its start time and its memory by their cause, so that neither grows unseen."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from gateway.cli.children import free_ports
from tests.support.engine import completes, engine
from tests.support.otlp import collector
from tests.support.processes import running, wait_for

SERVE = """
import atexit, sys
from gateway.cli import main
atexit.register(lambda: print("loaded", *sys.modules))
sys.argv[1:] = ["serve", "headrace.yaml"]
main()
"""
KV = {"gateway.kv.core", "zmq", "cbor2", "numpy", "policies.cost_model.model"}
TRACES = {"opentelemetry", "google.protobuf", "requests"}
NEVER = {
    "rich",
    "pygments",
    "numpy.ma",
    "charset_normalizer",
    "redis",
    "jinja2",
    "tokenizers",
    "cryptography",
    "blake3",
    "anyio",
    "unittest",
    "backends.simulator",
    "gateway.replay",
    "gateway.cli.demo",
    "gateway.cli.top",
}


async def loaded(folder: Path, routing: str, telemetry: Mapping[str, Any] = {}) -> set[str]:
    """Which of the packages above are there once a gateway has served an exchange and ended."""
    port, admin_port = free_ports(0, 0)
    async with engine(completes()) as made:
        config = {
            "listen": {"port": port, "admin_port": admin_port, "drain_s": 0},
            "auth": {"mode": "open"},
            "pools": [{"name": "a", "engine": "vllm", "model": "glm", "replicas": [made.url]}],
            "models": [{"name": "glm", "pools": ["a"], "routing": routing}],
            "telemetry": telemetry,
        }
        (folder / "headrace.yaml").write_bytes(msgspec.json.encode(config))
        log = folder / "log"
        with running([sys.executable, "-c", SERVE], log, cwd=folder) as process:
            await asyncio.to_thread(wait_for, f"http://127.0.0.1:{admin_port}/readyz", process, log, 30.0)
            async with aiohttp.ClientSession() as session:
                chat = {"model": "glm", "messages": [{"role": "user", "content": "hi"}]}
                async with session.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=chat) as answer:
                    assert answer.status == 200, await answer.text()
            process.terminate()
            assert await asyncio.to_thread(process.wait, 20.0) == 0
    modules = next(line for line in log.read_text().splitlines() if line.startswith("loaded ")).split()
    return {name for name in KV | TRACES | NEVER if any(f"{module}.".startswith(f"{name}.") for module in modules)}


async def test_a_policy_that_looks_up_nothing_loads_nothing_for_it(tmp_path: Path) -> None:
    assert await loaded(tmp_path, "p2c") == set()


async def test_what_follows_the_cache_comes_with_a_policy_that_asks(tmp_path: Path) -> None:
    assert await loaded(tmp_path, "latency") == KV


async def test_a_collector_brings_the_exporter_alone(tmp_path: Path) -> None:
    with collector() as sink:
        assert await loaded(tmp_path, "p2c", {"otlp_endpoint": sink.url, "sample_ratio": 1}) == TRACES
        assert {span.name for span in sink.spans} >= {"decision", "attempt"}
