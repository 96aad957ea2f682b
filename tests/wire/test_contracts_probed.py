"""Probing beside traffic: contracts change while the gateway serves, contradictions are told, tenants pay nothing."""

import asyncio
from typing import Any

from backends.contract import Source
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.simulator import Sim, simulator

TOKEN = {"authorization": "Bearer t"}
ADMIN = {"admin": {"token": "t"}}
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}
LOOK = {"messages": [{"role": "user", "content": [IMAGE]}]}


def probed(url: str, name: str = "a", **more: Any) -> dict[str, Any]:
    """A pool whose contract is probed as soon as it is ready, and then when a test is long over."""
    probe = {"golden": True, "interval_s": 60.0, **more.pop("probe", {})}
    return pool_of(url, name=name, probe=probe, **more)


async def known(one: Running, pool: str = "a", term: str = "storage") -> None:
    """Wait until a probe has shown `term`, which is among the last to be found."""
    async with asyncio.timeout(20):
        while one.app.book.contracts[pool].source(term) is not Source.PROBED:
            await asyncio.sleep(0.02)


async def ask(one: Running, status: int = 200, **body: Any) -> tuple[Any, Any]:
    async with one.chat(body) as answer:
        assert answer.status == status, await answer.text()
        return answer.headers, await answer.json()


async def scraped(one: Running, name: str) -> list[str]:
    """Samples of a metric."""
    async with one.client.get(f"{one.admin_url}/metrics") as answer:
        return [line for line in (await answer.text()).splitlines() if line.startswith(name)]


async def probes(sim: Sim) -> int:
    """How much a simulated engine was asked for its contract."""
    asked = await sim.get("/sim/requests")
    return sum(request["headers"].get("user-agent") == "headrace-probe" for request in asked)


async def test_what_a_probe_finds_holds_from_then_on() -> None:
    async with simulator(model="glm", reasoning="glm") as sim, gateway(config_of([probed(sim.server.url)])) as one:
        _, before = await ask(one, 400, **LOOK)
        assert not before["error"]["message"].startswith("No pool")  # the engine's own words
        headers, _ = await ask(one, reasoning_effort="medium")
        assert "x-gateway-adapted" not in headers
        await known(one)
        _, after = await ask(one, 400, **LOOK)
        assert after["error"]["message"] == (
            "No pool of `glm` can serve `messages` of this request: "
            "a: image input is not supported by its python frontend."
        )
        headers, _ = await ask(one, reasoning_effort="medium")
        assert headers["x-gateway-adapted"] == "reasoning_effort=high;requested=medium"


async def test_no_tenant_pays_for_a_probe() -> None:
    async with simulator(model="glm") as sim, gateway(config_of([probed(sim.server.url)])) as one:
        await known(one)
        assert await probes(sim) > 20
        assert list(one.app.telemetry.recent) == []
        assert one.access_log == []
        assert await scraped(one, "headrace_exchanges_total") == []
        assert await scraped(one, "headrace_tokens_total") == []
        assert await scraped(one, "headrace_attempts_total") == []
        await one.settled()


async def test_a_probe_keeps_to_its_budget() -> None:
    few = {"golden_requests": 12}
    async with simulator(model="glm") as sim, gateway(config_of([probed(sim.server.url, probe=few)])) as one:
        await known(one, term="max_context")
        assert await probes(sim) == 12
        assert one.app.book.contracts["a"].source("storage") is None


async def test_a_contradiction_is_told_once_and_the_probe_wins() -> None:
    declared = {"contract": {"max_context": 999_999, "storage": True}, "probe": {"golden_interval_s": 0.1}}
    async with simulator(model="glm", max_model_len=4096) as sim:
        async with gateway(config_of([probed(sim.server.url, **declared)], **ADMIN)) as one:
            await known(one)
            first = one.app.book.contracts["a"]
            async with asyncio.timeout(20):  # the next round
                while one.app.book.contracts["a"] is first:
                    await asyncio.sleep(0.02)
            assert sorted(await scraped(one, "headrace_contract_incidents_total")) == [
                'headrace_contract_incidents_total{pool="a",term="max_context"} 1.0',
                'headrace_contract_incidents_total{pool="a",term="storage"} 1.0',
            ]
            async with one.client.get(f"{one.admin_url}/admin/v1/contracts", headers=TOKEN) as answer:
                listed = await answer.json()
            assert {incident["term"] for incident in listed["incidents"]} == {"max_context", "storage"}
            [contract] = listed["contracts"]
            assert {"term": "max_context", "declared": "999999", "probed": "4096"} in contract["contradictions"]
            shown = contract["terms"]["max_context"]
            assert (shown["value"], shown["source"]) == ("4096", "probed")
            assert "max_model_len 4096" in shown["evidence"]
            assert not contract["held"]
            await ask(one)


async def test_a_pool_held_out_takes_nothing_and_the_client_may_retry() -> None:
    hold = {"contract": {"max_context": 999_999}, "probe": {"on_contradiction": "hold"}}
    async with simulator(model="glm") as sim, gateway(config_of([probed(sim.server.url, **hold)])) as one:
        await known(one)
        headers, told = await ask(one, 503)
        assert "a: held out: a probe contradicts its declaration" in told["error"]["message"]
        assert (headers["retry-after"], headers["x-should-retry"]) == ("5", "true")
        asked = {"model": "glm", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
        async with one.client.post(f"{one.url}/v1/messages", json=asked) as answer:
            assert (answer.status, (await answer.json())["error"]["type"]) == (529, "overloaded_error")


async def test_traffic_goes_round_a_pool_held_out() -> None:
    hold = {"contract": {"max_context": 999_999}, "probe": {"on_contradiction": "hold"}}
    async with simulator(model="glm") as bad, simulator(model="glm") as good:
        pools = [probed(bad.server.url, **hold), probed(good.server.url, name="b")]
        async with gateway(config_of(pools)) as one:
            await known(one, "a")
            for _ in range(5):
                assert (await ask(one))[0]["x-gateway-pool"] == "b"


async def test_a_reload_keeps_what_is_known_of_pools_that_stay() -> None:
    async with simulator(model="glm") as sim, simulator(model="glm") as other:
        pools = [probed(sim.server.url), probed(other.server.url, name="b")]
        async with gateway(config_of(pools)) as one:
            await known(one, "a")
            await known(one, "b")
            kept, spent = one.app.book.contracts["a"], await probes(sim)
            changed = [{**pools[0], "weight": 3.0}, {**pools[1], "contract": {"storage": True}}]
            await one.app.apply(config_of(changed), ())
            assert one.app.book.contracts["a"] is kept
            assert one.app.book.contracts["b"].source("storage") is Source.DECLARED
            await known(one, "b")
            assert [incident.term for incident in one.app.book.incidents] == ["storage"]
            assert await probes(sim) == spent
            await one.app.apply(config_of(changed[:1]), ())
            assert set(one.app.book.contracts) == {"a"}
            await ask(one)
