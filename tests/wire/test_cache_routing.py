"""Routing by where the prompt lies, and the truth loop, in front of simulated engines that publish their events."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from backends.contracts import ReplicaState
from gateway.clock import SystemClock
from gateway.kv.cache import KvCache
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.sim_tokenizer import TEMPLATE, sim_tokenizer
from tests.support.simulator import Sim, simulator
from tiering.hashing.vllm import VllmScheme
from tiering.plan import Prompt

WORDS = ["water", "river", "turbine", "gate", "tunnel", "valve", "wheel", "power", "flow", "light", "city", "mill"]
EXCHANGES = 500


def prose(seed: object, words: int) -> str:
    source = random.Random(f"{seed}")
    return " ".join(source.choice(WORDS) for _ in range(words))


@asynccontextmanager
async def fleet(
    kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch, *, template: str | None = TEMPLATE, **options: Any
) -> AsyncIterator[tuple[Running, list[Sim]]]:
    """A gateway that routes by latency before one pool per kind. Without `template` pools are looked up by text."""
    tokenizer = sim_tokenizer(SystemClock(), template) if template else None
    monkeypatch.setattr(KvCache, "_tokenizer", lambda _self, _pool: tokenizer)
    async with AsyncExitStack() as stack:
        sims = [
            await stack.enter_async_context(simulator(kind, model="glm", kv_events=0, profile="instant", **options))
            for kind in kinds
        ]
        pools = [
            pool_of(sim.server.url, name=f"p{place}", engine=kind)
            for place, (kind, sim) in enumerate(zip(kinds, sims, strict=True))
        ]
        config = config_of(pools, admin={"token": "t"})
        config = config.model_copy(
            update={"models": tuple(m.model_copy(update={"routing": "latency"}) for m in config.models)}
        )
        running = await stack.enter_async_context(gateway(config))
        await asyncio.sleep(0.05)
        yield running, sims


async def warm(running: Running, sims: Sequence[Sim], *, exact: bool) -> None:
    """Wait until every event source is followed, then let each pool show its hashes."""
    kv = running.app.kv
    async with asyncio.timeout(10.0):
        while exact and sum(source["phase"] == "live" for source in kv.status()["sources"]) < len(sims):
            await asyncio.sleep(0.02)
    for sim in sims:
        await sim.chat(model="glm", messages=[{"role": "user", "content": prose(sim.server.url, 80)}], max_tokens=1)
    async with asyncio.timeout(10.0):
        while exact and any(pool["lookup"] != "exact" for pool in kv.status()["pools"]):
            await asyncio.sleep(0.02)


async def heard(running: Running, sims: Sequence[Sim]) -> None:
    """Wait until all events that were sent are in the index."""
    async with asyncio.timeout(10.0):
        while sum(source["batches"] for source in running.app.kv.status()["sources"]) < sum(
            sim.server.published for sim in sims
        ):
            await asyncio.sleep(0.002)


async def converse(running: Running, count: int, sims: Sequence[Sim] = (), *, scale: int = 1) -> None:
    """`count` exchanges of conversations that take turns, some with a shared beginning. `scale` makes them long.

    With `sims`, a turn begins when all that is known of the one before has been heard.
    """
    source = random.Random(3)
    talks: list[list[dict[str, str]]] = []
    for number in range(count):
        if not talks or source.random() < 0.2:
            shared = prose(number % 3, 60 * scale)
            talks.append([{"role": "system", "content": f"{shared} {prose(number, 40 * scale)}"}])
        talk = source.choice(talks[-12:])
        talk.append({"role": "user", "content": prose((number, "q"), source.randint(3, 30))})
        async with running.chat({"messages": talk, "max_tokens": 8}) as answer:
            assert answer.status == 200, await answer.text()
            said = (await answer.json())["choices"][0]["message"]["content"]
        talk.append({"role": "assistant", "content": said})
        await heard(running, sims)


def totals(running: Running) -> tuple[int, int]:
    series = running.app.kv.status()["series"]
    return sum(entry["exchanges"] for entry in series), sum(entry["correct"] for entry in series)


async def scraped(running: Running) -> dict[str, float]:
    """Samples of `/metrics` as they are written, by name and labels."""
    async with running.client.get(f"{running.admin_url}/metrics") as answer:
        lines = [line for line in (await answer.text()).splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


async def test_a_scrape_tells_how_well_predictions_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(("vllm",), monkeypatch) as (running, sims):
        before = await scraped(running)
        assert before["headrace_kv_index_blocks"] == 0
        assert 'headrace_kv_accuracy_ratio{pool="p0"}' not in before
        await warm(running, sims, exact=True)
        await converse(running, 20, sims)
        async with running.chat({"stream": True, "max_tokens": 20}) as answer:
            await answer.read()
        await running.settled()
        await heard(running, sims)
        after = await scraped(running)
        assert after["headrace_kv_index_blocks"] > 0
        assert after['headrace_kv_exact{pool="p0"}'] == 1
        assert after['headrace_kv_load_only{pool="p0"}'] == 0
        assert after['headrace_kv_accuracy_ratio{pool="p0"}'] >= 0.95
        assert after['headrace_kv_hash_match_ratio{pool="p0"}'] == 1
        series = 'pool="p0",tenant="anonymous"'
        assert after[f'headrace_kv_predictions_total{{dialect="chat",outcome="correct",{series}}}'] >= 20
        assert after[f'headrace_kv_prediction_tokens_total{{dialect="chat",kind="reported",{series}}}'] > 0
        replica = 'pool="p0",replica="p0/0"'
        assert after[f'headrace_kv_event_feeds{{phase="live",{replica}}}'] == 1
        assert after[f"headrace_kv_event_batches_total{{{replica}}}"] == sims[0].server.published
        assert after[f'headrace_kv_event_incidents_total{{kind="loss",{replica}}}'] == 0
        for of, least in (("ttft", 20), ("per_token", 1)):
            assert after[f'headrace_predictions_total{{of="{of}",{replica}}}'] >= least
            assert after[f'headrace_prediction_error_ratio{{of="{of}",{replica}}}'] > 0
        headers = {"authorization": "Bearer t"}
        async with running.client.get(f"{running.admin_url}/admin/v1/replicas", headers=headers) as answer:
            (shown,) = (await answer.json())["replicas"]
        assert shown["learned"]["ttft_observations"] >= 20
        assert {"front", "prefill_short", "step"} <= shown["learned"]["factors"].keys()
        async with running.client.get(f"{running.admin_url}/admin/v1/kv", headers=headers) as answer:
            (source,) = (await answer.json())["sources"]
        assert source["phase"] == "live"
        assert source["replays"] >= 1


@pytest.mark.parametrize("kinds", [("vllm", "vllm"), ("vllm", "sglang")])
@pytest.mark.timeout(120)
async def test_predictions_hold(kinds: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(kinds, monkeypatch) as (running, sims):
        await warm(running, sims, exact=True)
        await converse(running, EXCHANGES, sims)
        exchanges, correct = totals(running)
        assert exchanges >= EXCHANGES
        assert correct >= 0.99 * exchanges
        await running.settled()


async def test_turns_go_where_their_conversation_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(("vllm", "vllm"), monkeypatch) as (running, sims):
        await warm(running, sims, exact=True)
        for number in range(6):
            talk = [{"role": "system", "content": prose(("long", number), 4000)}]
            pools = []
            for turn in range(4):
                talk.append({"role": "user", "content": prose((number, turn), 10)})
                async with running.chat({"messages": talk, "max_tokens": 4}) as answer:
                    pools.append(answer.headers["x-gateway-pool"])
                    talk.append(
                        {"role": "assistant", "content": (await answer.json())["choices"][0]["message"]["content"]}
                    )
                await heard(running, sims)
            assert len(set(pools)) == 1


async def test_a_pool_without_events_is_looked_up_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(("vllm", "sglang"), monkeypatch, template=None) as (running, _):
        await converse(running, 60, scale=30)
        status = running.app.kv.status()
        assert {pool["lookup"] for pool in status["pools"]} == {"text"}
        assert status["sources"] == []
        exchanges, correct = totals(running)
        assert exchanges == 60
        assert correct >= 0.8 * exchanges


async def test_short_prompts_do_not_demote_a_pool_that_is_looked_up_by_text(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(("vllm", "sglang"), monkeypatch, template=None) as (running, _):
        await converse(running, 60)
        for number in range(60):
            talk = [{"role": "user", "content": prose(number % 20, 8)}]
            async with running.chat({"messages": talk, "max_tokens": 4}) as answer:
                await answer.read()
        exchanges, correct = totals(running)
        assert exchanges == 120
        assert correct >= 0.95 * exchanges
        assert not any(pool["load_only"] for pool in running.app.kv.status()["pools"])


async def test_a_replica_that_comes_back_is_thought_to_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(("vllm",), monkeypatch, template=None) as (running, sims):
        app, (member,) = running.app, tuple(running.app.fleet)
        talk = [{"role": "user", "content": prose("long", 2000)}]

        async def cached() -> int:
            asked = Prompt("glm", "anonymous", "chat", (json.dumps(talk).encode()[:-1],))
            plan = await app.kv.plan(app.fleet.snapshot(), ["p0"], asked)
            return int(plan.located.reach.max())

        async with running.chat({"messages": talk, "max_tokens": 1}) as answer:
            assert answer.status == 200
        assert await cached() > 1000
        await sims[0].server.stop()
        assert app._prober is not None
        assert (await app._prober.probe(member, models=False))[0] is ReplicaState.DOWN
        assert await cached() == 0


async def test_a_replica_that_takes_the_name_of_one_that_left_is_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(("vllm",), monkeypatch, template=None) as (running, _), simulator("vllm", model="glm") as other:
        app, asked = running.app, Prompt("glm", "t", "chat", (b"x" * 20_000,))
        (replica,) = app.fleet.snapshot().replicas
        app.kv.sent(await app.kv.plan(app.fleet.snapshot(), ["p0"], asked), replica)
        assert (await app.kv.plan(app.fleet.snapshot(), ["p0"], asked)).located.reach.max() > 1000
        await app.apply(config_of([pool_of(other.server.url, name="p0")]), ())
        assert [member.id for member in app.fleet] == [replica.id]
        assert (await app.kv.plan(app.fleet.snapshot(), ["p0"], asked)).located.reach.max() == 0


async def test_a_wrong_template_is_named_and_the_pool_demoted(monkeypatch: pytest.MonkeyPatch) -> None:
    async with fleet(("vllm",), monkeypatch, template="x" + TEMPLATE) as (running, sims):
        await warm(running, sims, exact=True)
        await converse(running, 50, sims)
        causes = running.app.kv.status()["series"][0]["causes"]
        assert max(causes, key=causes.get) == "template"
        assert running.app.kv.status()["pools"][0]["load_only"]
        samples = await scraped(running)
        assert samples['headrace_kv_misses_total{cause="template",pool="p0"}'] == causes["template"]
        assert samples['headrace_kv_lookup_changes_total{pool="p0",to="load_only"}'] == 1
        assert samples['headrace_kv_load_only{pool="p0"}'] == 1


async def test_a_wrong_seed_falls_back_to_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.kv.core.detect", lambda *_: VllmScheme(16, "sha256_cbor", "another seed"))
    async with fleet(("vllm",), monkeypatch) as (running, sims):
        await warm(running, sims, exact=True)
        await converse(running, 50, sims)
        (pool,) = running.app.kv.status()["pools"]
        assert pool["hash_match_ratio"] == 0.0
        assert pool["lookup"] == "text"
