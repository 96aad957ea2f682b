"""What engines count reaches the cost model: simulated pools that are other than their profile says."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace

import pytest

from backends.profiles import Profile, load_profile
from gateway import counting
from policies.cost_model.columns import Col
from policies.cost_model.model import CostModel
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.simulator import Sim, simulator

PROBE = {"golden": False, "interval_s": 0.1}
LINK, DISK, PER_STEP = 3.0, 2.0, 2.4  # how many times slower than the profile; tokens of a step, where it has one
FLUSH = {
    "vllm": ("/reset_prefix_cache", "/reset_prefix_cache?reset_external=true"),  # host memory then has it, or files
    "sglang": ("/flush_cache",),
}


def real(name: str, engine: str) -> Profile:
    """What the engine is, while its pool's configuration says that it is `name`."""
    said = load_profile(name, engine)  # type: ignore[arg-type]
    if said.host is None or said.fs is None:
        return said
    return replace(
        said,
        tokens_per_step=PER_STEP,
        host=replace(said.host, bytes_per_s=said.host.bytes_per_s / LINK),
        fs=replace(said.fs, bytes_per_s=said.fs.bytes_per_s / DISK, write_bytes_per_s=1e13),
    )


async def come_back(sim: Sim, engine: str, number: int) -> None:
    """A long prompt that no one but the engine knows of, and the same again from each of its lower tiers."""
    source = random.Random(number)
    words = " ".join(source.choice(("water", "river", "gate", "valve")) for _ in range(8000))
    asked = {"model": "glm", "messages": [{"role": "user", "content": words}], "max_tokens": 40}
    await sim.chat(**asked)
    for path in FLUSH[engine]:
        assert (await sim.post(path, {})).status == 200
        await sim.chat(**asked)


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(10.0):
        while not holds():
            await asyncio.sleep(0.02)


def model_of(running: Running) -> CostModel:
    model = running.app._costs.model
    assert model is not None
    return model


async def test_counters_move_the_cost_model_to_what_engines_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counting, "ASK_EVERY_S", 0.1)
    monkeypatch.setattr("backends.simulator.server.load_profile", real)
    async with AsyncExitStack() as stack:
        sims = {
            engine: await stack.enter_async_context(simulator(engine, model="glm", profile="h200", time_scale=50.0))
            for engine in FLUSH
        }
        pools = [
            pool_of(sim.server.url, name=engine, engine=engine, hardware="h200") | {"probe": PROBE}
            for engine, sim in sims.items()
        ]
        running = await stack.enter_async_context(gateway(config_of(pools)))
        assert running.app._costs.model is None  # with a plain policy nothing is counted
        config = config_of(pools)
        models = tuple(model.model_copy(update={"routing": "latency"}) for model in config.models)
        await running.app.apply(config.model_copy(update={"models": models}), ())
        async with running.chat({"max_tokens": 1}) as answer:  # a first decision, so that the replicas are known
            assert answer.status == 200
        model, seen = model_of(running), running.app._counting._seen
        await until(lambda: len(seen) == len(pools))
        assert list(model.columns[Col.PER_STEP]) == [1.0, 1.0]
        for number in range(30):
            for engine, sim in sims.items():
                await come_back(sim, engine, number)
            await asyncio.sleep(0.15)
            if min(model.columns[Col.PER_STEP]) > PER_STEP - 0.4 and number > 2:
                break
        for row, engine in enumerate(sims):
            learned = model.multipliers(f"{engine}/0")
            assert PER_STEP - 0.4 < model.columns[Col.PER_STEP, row] < PER_STEP + 0.1
            assert learned["fs"] == pytest.approx(DISK, rel=0.1)
        assert model.multipliers("vllm/0")["host"] == pytest.approx(LINK, rel=0.1)
        # At its profile's rate SGLang's link would stay below the time that any restore takes.
        assert 1.5 < model.multipliers("sglang/0")["host"] < LINK


async def test_nobody_counts_for_plain_policies() -> None:
    async with simulator("sglang", model="glm", profile="gb200-mtp", time_scale=100.0) as sim:
        pool = pool_of(sim.server.url, engine="sglang", hardware="gb200-mtp") | {"probe": PROBE}
        async with gateway(config_of([pool])) as running:
            await until(lambda: running.app.fleet.snapshot().replicas[0].load.at_s > 0.0)
            assert running.app._counting._seen == {}
            assert running.app._costs.model is None
