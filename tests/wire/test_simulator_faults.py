"""Each fault does to the client what it says."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import pytest

from backends.simulator.outlet import Outlet
from tests.support.simulator import HELLO, Sim, simulator

BODY: dict[str, Any] = {"model": "sim", "messages": HELLO, "max_tokens": 8, "ignore_eos": True}
STREAM = BODY | {"stream": True}
ENGINES = pytest.mark.parametrize("engine", ["vllm", "sglang"])


async def read(sim: Sim, body: dict[str, Any], fault: str) -> bytes:
    """The bytes of an answer, however it ends."""
    async with sim.session.post(
        sim.server.url + "/v1/chat/completions", json=body, headers={"x-sim-fault": fault}
    ) as r:
        got = b""
        try:
            async for chunk in r.content.iter_any():
                got += chunk
        except aiohttp.ClientPayloadError as error:
            return got + f"<{type(error).__name__}>".encode()
        except ConnectionResetError:
            return got + b"<reset>"
        return got


@ENGINES
async def test_reset_after(engine: str) -> None:
    async with simulator(engine) as sim:
        got = await read(sim, STREAM, "reset_after=3")
        assert got.count(b"data: ") <= 3
        assert got.endswith((b"<ClientPayloadError>", b"<reset>"))
        assert (await read(sim, BODY, "reset_after")).endswith((b"<ClientPayloadError>", b"<reset>"))
        assert (await sim.state())["in_flight"] == 0


@pytest.mark.parametrize("step", ["open", "send", "close"])
async def test_a_client_that_leaves_while_it_is_written_to(
    step: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The transport closes between the last await of the generation and the write, so nobody was cancelled yet."""
    wanted = getattr(Outlet, step)

    async def leaving(outlet: Outlet, *args: Any) -> None:
        assert outlet._request.transport is not None
        outlet._request.transport.close()
        await wanted(outlet, *args)

    async with simulator("vllm") as sim:
        monkeypatch.setattr(Outlet, step, leaving)
        with pytest.raises(aiohttp.ClientError):
            async with sim.session.post(sim.server.url + "/v1/chat/completions", json=STREAM) as answer:
                await answer.read()
        monkeypatch.undo()
        assert (await sim.state())["in_flight"] == 0
        assert [record.getMessage() for record in caplog.records if record.levelname == "ERROR"] == []


@ENGINES
async def test_truncate_after(engine: str) -> None:
    async with simulator(engine) as sim:
        got = await read(sim, STREAM, "truncate_after=2")
        assert got.count(b"data: ") == 2
        assert b"[DONE]" not in got
        assert b'"finish_reason":"' not in got
        assert (await read(sim, BODY, "truncate_after")).endswith(b"<ClientPayloadError>")


@ENGINES
async def test_error_frame(engine: str) -> None:
    async with simulator(engine) as sim:
        got = await read(sim, STREAM, "error_frame")
        frames = [line for line in got.decode().split("\n\n") if line]
        assert '"error": {' in frames[1]
        assert frames[2] == "data: [DONE]"
        response = await sim.post("/v1/chat/completions", BODY, **{"x-sim-fault": "error_frame"})
        assert response.status == 500


@ENGINES
async def test_stall_after(engine: str) -> None:
    async with simulator(engine) as sim:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(sim, STREAM, "stall_after=2"), 0.2)
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(read(sim, BODY, "hang"), 0.2)


@ENGINES
async def test_bad_utf8(engine: str) -> None:
    async with simulator(engine) as sim:
        for body in (STREAM, BODY):
            got = await read(sim, body, "bad_utf8")
            with pytest.raises(UnicodeDecodeError):
                got.decode()


@ENGINES
async def test_abort(engine: str) -> None:
    async with simulator(engine) as sim:
        got = await read(sim, STREAM, "abort=2")
        assert b'"finish_reason":"abort"' in got
        assert got.endswith(b"[DONE]\n\n")
        assert b'"finish_reason":"abort"' in await read(sim, BODY, "abort")


@ENGINES
async def test_whole_connections(engine: str) -> None:
    async with simulator(engine) as sim:
        for fault in ("refuse", "garbage"):
            with pytest.raises(aiohttp.ClientError):
                await read(sim, BODY, fault)
        response = await sim.post("/v1/chat/completions", BODY, **{"x-sim-fault": "http_500"})
        assert response.status == 500


async def test_nothing_listens_when_refusing_is_certain() -> None:
    async with simulator("vllm", fault="refuse", port=1) as sim:
        with pytest.raises(aiohttp.ClientConnectorError):
            await sim.get("/health")


async def test_slow_first_byte_and_hang_health() -> None:
    async with simulator("vllm", fault="slow_first_byte=0.05,hang_health") as sim:
        loop = asyncio.get_running_loop()
        began = loop.time()
        await sim.chat()
        assert loop.time() - began >= 0.05
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(sim.get("/health"), 0.1)
        assert (await sim.get("/v1/models"))["data"]


async def test_faults_change_at_run_time() -> None:
    async with simulator("vllm", fault="http_500") as sim:
        assert (await sim.post("/v1/chat/completions", BODY)).status == 500
        assert (await sim.post("/sim/faults", {"spec": "sneeze"})).status == 400
        assert (await sim.post("/v1/chat/completions", BODY)).status == 500
        changed = await sim.post("/sim/faults", {"spec": ""})
        assert await changed.json() == {"faults": []}
        assert (await sim.post("/v1/chat/completions", BODY)).status == 200
        assert (await sim.post("/v1/chat/completions", BODY, **{"x-sim-fault": "sneeze"})).status == 400


async def test_probability_is_drawn_from_the_seed() -> None:
    async def statuses(seed: int) -> list[int]:
        async with simulator("vllm", fault="http_500:0.3", seed=seed) as sim:
            return [(await sim.post("/v1/chat/completions", BODY)).status for _ in range(40)]

    first = await statuses(7)
    assert first == await statuses(7)
    assert first != await statuses(8)
    assert 4 <= first.count(500) <= 24
