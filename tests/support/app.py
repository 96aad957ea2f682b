"""A whole gateway inside the test's own event loop."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp
from aiohttp import web

from backends.contracts import ReplicaState
from gateway.app import App
from gateway.clock import SystemClock
from gateway.config.model import Config
from gateway.telemetry.lines import LineWriter


@dataclass
class Running:
    """A gateway with both listeners open and a client to talk to it."""

    app: App
    url: str
    admin_url: str
    client: aiohttp.ClientSession
    access_log: list[bytes]

    def chat(self, body: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """POST a Chat request; `body` completes a small default one."""
        asked = {"model": "glm", "messages": [{"role": "user", "content": "hi"}], **(body or {})}
        return self.client.post(f"{self.url}/v1/chat/completions", json=asked, **options)

    async def settled(self) -> None:
        """Wait until no exchange is in flight, and check that every lease came back."""
        async with asyncio.timeout(2.0):
            while self.app.telemetry.live:
                await asyncio.sleep(0.005)
        table = self.app.fleet.snapshot().table
        assert set(table.exchanges) | set(table.prefill_tokens) | set(table.context_tokens) <= {0}


def config_of(pools: Sequence[Mapping[str, Any]], **more: Any) -> Config:
    """An open gateway on loopback with one model `glm` over all `pools`."""
    tree: dict[str, Any] = {
        "listen": {"port": 0, "admin_port": 0},
        "auth": {"mode": "open"},
        "pools": pools,
        "models": [{"name": "glm", "aliases": ["glm-*"], "pools": [pool["name"] for pool in pools], "routing": "p2c"}],
        "telemetry": {"sample_ratio": 0},
    }
    for key, value in more.items():
        tree[key] = {**tree[key], **value} if isinstance(tree.get(key), dict) else value
    return Config.model_validate(tree)


def pool_of(*urls: str, name: str = "a", engine: str = "vllm", **more: Any) -> dict[str, Any]:
    """A pool of the model `glm` that is probed slowly, so that tests decide what happens."""
    probe = {"golden": False, "interval_s": 60.0}
    return {"name": name, "engine": engine, "model": "glm", "replicas": list(urls), "probe": probe, **more}


@asynccontextmanager
async def gateway(config: Config, *, ready: bool = True) -> AsyncIterator[Running]:
    """Run a gateway. `ready` calls every replica ready without a probe."""
    written: list[bytes] = []
    lines = LineWriter(written.append)
    lines.start()
    app = App(config, clock=SystemClock(), rng=random.Random(1), lines=lines)
    data, admin = web.ServerRunner(app.edge, shutdown_timeout=0.1), web.AppRunner(app.admin(), shutdown_timeout=0.1)
    async with app.running(), aiohttp.ClientSession() as client:
        for runner in (data, admin):
            await runner.setup()
            await web.TCPSite(runner, "127.0.0.1", 0).start()
        urls = [f"http://127.0.0.1:{runner.addresses[0][1]}" for runner in (data, admin)]
        if ready:
            for member in app.fleet:
                app.fleet.set_state(member, ReplicaState.READY)
        try:
            yield Running(app, urls[0], urls[1], client, written)
        finally:
            await client.close()
            await data.cleanup()
            await admin.cleanup()
    lines.close()
