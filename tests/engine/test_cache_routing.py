"""Routing by cache in front of both real engines: what the gateway predicted is what they report."""

from __future__ import annotations

import asyncio
import os
import random
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.engine.servers import MODEL, SGLANG, VLLM
from tests.support.gateway import Gateway, gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(3600)]

EXCHANGES = int(os.environ.get("HEADRACE_TEST_KV_EXCHANGES", "60"))  # 500 in a full run: minutes on a CPU
ENGINES_DIR = Path(os.environ.get("ENGINES_DIR", Path.home() / ".cache/headrace-engines"))
MODEL_DIR = ENGINES_DIR / "models/smollm2-135m"
WORDS = [
    "river",
    "turbine",
    "channel",
    "water",
    "pressure",
    "stone",
    "valley",
    "engine",
    "winter",
    "copper",
    "signal",
    "paper",
]
EVENT_DELAY_S = 0.15  # an engine publishes with its next step


def prose(seed: object, words: int) -> str:
    source = random.Random(f"{seed}")
    return " ".join(source.choice(WORDS) for _ in range(words))


async def kv(running: Gateway) -> dict[str, Any]:
    return await asyncio.to_thread(running.admin, "kv")


async def ask(session: aiohttp.ClientSession, running: Gateway, messages: list[dict[str, str]]) -> str:
    body = {"model": "smol", "messages": messages, "max_tokens": 4, "temperature": 0}
    async with session.post(f"{running.url}/v1/chat/completions", json=body, headers=running.headers) as answer:
        assert answer.status == 200, await answer.text()
        return str((await answer.json())["choices"][0]["message"]["content"] or "")


async def until_exact(session: aiohttp.ClientSession, running: Gateway) -> None:
    """Ask until each pool has shown its hashes."""
    number = 0
    async with asyncio.timeout(300):
        while any(pool["lookup"] != "exact" for pool in (await kv(running))["pools"]):
            number += 1
            await ask(session, running, [{"role": "user", "content": prose(("warm", number), 90)}])
            await asyncio.sleep(EVENT_DELAY_S)


async def test_predictions_hold(vllm_url: str, sglang_url: str, tmp_path: Path) -> None:
    pools = [
        {"name": kind.name, "engine": kind.name, "model": MODEL, "replicas": [url], "tokenizer": str(MODEL_DIR)}
        for kind, url in ((VLLM, vllm_url), (SGLANG, sglang_url))
    ]
    models = [{"name": "smol", "pools": [pool["name"] for pool in pools], "routing": "latency"}]
    source = random.Random(5)
    talks: list[list[dict[str, str]]] = []
    with gateway({"pools": pools, "models": models}, tmp_path) as running:
        timeout = aiohttp.ClientTimeout(total=300)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            await until_exact(session, running)
            before = sum(entry["exchanges"] for entry in (await kv(running))["series"])
            wrong_before = before - sum(entry["correct"] for entry in (await kv(running))["series"])
            for number in range(EXCHANGES):
                if not talks or source.random() < 0.25:
                    talks.append([{"role": "system", "content": f"{prose(number % 3, 50)} {prose(number, 30)}"}])
                talk = source.choice(talks[-8:])
                talk.append({"role": "user", "content": prose((number, "q"), source.randint(3, 25))})
                talk.append({"role": "assistant", "content": await ask(session, running, talk)})
                await asyncio.sleep(EVENT_DELAY_S)
            series = (await kv(running))["series"]
    exchanges = sum(entry["exchanges"] for entry in series) - before
    wrong = sum(entry["exchanges"] - entry["correct"] for entry in series) - wrong_before
    assert exchanges == EXCHANGES
    assert wrong <= 0.01 * exchanges, series
