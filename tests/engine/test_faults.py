"""Refusals, disconnects and drain in front of real engines."""

from __future__ import annotations

import asyncio
import json
import re
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.engine.conftest import ALIASES, EITHER, config
from tests.engine.servers import SGLANG, VLLM
from tests.support.gateway import Gateway, gateway

pytestmark = pytest.mark.engine

CHAT = "/v1/chat/completions"
LEAK = re.compile(r"(/[\w.-]+){3,}\.py|127\.0\.0\.1|Traceback|site-packages")
LONG = {"max_tokens": 3000, "ignore_eos": True}  # minutes on a CPU: it ends only when somebody aborts it
FREED_LIMIT_S = 15.0


def ask(model: str, **extra: Any) -> dict[str, Any]:
    return {"model": model, "messages": [{"role": "user", "content": "Count from one to a hundred."}], **extra}


async def refused(url: Gateway, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    """Status and error object of a request that must fail, in OpenAI's envelope and without a leak."""
    async with (
        aiohttp.ClientSession() as session,
        session.post(
            url.url + CHAT, data=body, headers={"content-type": "application/json", **url.headers, **headers}
        ) as answer,
    ):
        text = await answer.text()
    assert not LEAK.search(text)
    assert "\n" not in json.loads(text)["error"]["message"]
    return answer.status, json.loads(text)["error"]


async def test_unknown_model(engine_gateway: Gateway) -> None:
    status, error = await refused(engine_gateway, json.dumps(ask("nobody")).encode())
    assert (status, error["code"]) == (404, "model_not_found")
    assert "nobody" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_prompt_too_long(engine_gateway: Gateway, model: str, stream: bool) -> None:
    body = ask(model, stream=stream) | {"messages": [{"role": "user", "content": "word " * 6000}]}
    status, error = await refused(engine_gateway, json.dumps(body).encode())
    assert (status, error["code"]) == (400, "context_length_exceeded")


async def test_bad_json(engine_gateway: Gateway) -> None:
    status, error = await refused(engine_gateway, b'{"model": "smol", "messages": [}')
    assert (status, error["type"]) == (400, "invalid_request_error")


async def test_wrong_type_names_the_field(engine_gateway: Gateway, model: str) -> None:
    status, error = await refused(engine_gateway, json.dumps(ask(model, temperature="hot")).encode())
    assert status == 400
    assert "temperature" in error["message"]


async def test_wrong_key(engine_gateway: Gateway) -> None:
    body = json.dumps(ask(EITHER)).encode()
    status, error = await refused(engine_gateway, body, authorization="Bearer nobody")
    assert (status, error["code"]) == (401, "invalid_api_key")


async def test_a_steering_field_cannot_hurt_the_engine(engine_gateway: Gateway, vllm_url: str) -> None:
    """vLLM dies of these parameters when they arrive."""
    body = ask(ALIASES[VLLM.name], max_tokens=2, kv_transfer_params={"do_remote_prefill": True})
    async with (
        aiohttp.ClientSession(headers=engine_gateway.headers) as session,
        session.post(engine_gateway.url + CHAT, json=body) as answer,
    ):
        assert answer.status == 200
    async with aiohttp.ClientSession() as session, session.get(vllm_url + "/health") as health:
        assert health.status == 200


def running_vllm(metrics: str) -> float:
    return sum(float(value) for value in re.findall(r"^vllm:num_requests_running\{.*\} (\S+)$", metrics, re.MULTILINE))


def running_sglang(loads: str) -> float:
    return float(sum(load["num_running_reqs"] for load in json.loads(loads)["loads"]))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("pool", "path", "running"),
    [(VLLM.name, "/metrics", running_vllm), (SGLANG.name, "/v1/loads", running_sglang)],
    ids=[VLLM.name, SGLANG.name],
)
async def test_disconnect_frees_the_engine(
    engine_gateway: Gateway,
    request: pytest.FixtureRequest,
    pool: str,
    path: str,
    running: Callable[[str], float],
    stream: bool,
) -> None:
    engine_url = request.getfixturevalue(f"{pool}_url")
    async with aiohttp.ClientSession(headers=engine_gateway.headers) as session:

        async def load() -> float:
            async with session.get(engine_url + path) as answer:
                return running(await answer.text())

        async def leave_after_start() -> None:
            async with session.post(
                engine_gateway.url + CHAT, json=ask(ALIASES[pool], stream=stream, **LONG)
            ) as answer:
                await answer.content.readany()

        asking = asyncio.create_task(leave_after_start()) if not stream else None
        if asking is None:
            await leave_after_start()
        else:
            await until(load, lambda running_now: running_now > 0)
            asking.cancel()
        await until(load, lambda running_now: running_now == 0)
    assert all(replica["in_flight"] == 0 for replica in engine_gateway.admin("replicas")["replicas"])


async def until(read: Callable[[], Any], reached: Callable[[float], bool]) -> None:
    async with asyncio.timeout(FREED_LIMIT_S):
        while not reached(await read()):
            await asyncio.sleep(0.1)


async def test_drain_fails_nobody(vllm_url: str, sglang_url: str, tmp_path: Path) -> None:
    """SIGTERM under load: what is in flight and what still arrives during the drain is answered in full, exit 0."""
    settings = config(vllm_url, sglang_url) | {"listen": {"drain_s": 2.0}}
    with gateway(settings, tmp_path, grace_s=60) as drained:
        async with aiohttp.ClientSession(headers=drained.headers) as session:

            async def stream(model: str) -> str:
                body = ask(model, max_tokens=32, ignore_eos=True, stream=True)
                async with session.post(drained.url + CHAT, json=body) as answer:
                    return await answer.text() if answer.status == 200 else f"status {answer.status}"

            streams = [asyncio.create_task(stream(alias)) for alias in ALIASES.values() for _ in range(3)]
            await asyncio.sleep(0.5)
            drained.process.send_signal(signal.SIGTERM)
            await asyncio.sleep(0.2)
            async with session.get(drained.admin_url + "/readyz") as ready:
                assert ready.status == 503
            streams += [asyncio.create_task(stream(alias)) for alias in ALIASES.values()]
            texts = await asyncio.gather(*streams)
        assert [text for text in texts if not text.rstrip().endswith("data: [DONE]") or '"error"' in text] == []
        assert await asyncio.to_thread(drained.process.wait, 30) == 0
