"""The client kit against the gateway and a simulated engine that reasons, sees and calls tools, in both flavours."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.conformance.__main__ import CHECKS, outcome, parser
from tests.conformance.client import Ctx
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.gateway import KEY, TENANT
from tests.support.simulator import simulator
from tests.support.threads import in_thread

ENGINES = ("vllm", "sglang")
CAN = {"modalities": ["text", "image"], "efforts": ["low", "high", "max"], "max_context": 8192}
# What the simulator does not do, or what takes more than this gateway.
SKIPPED = {
    "errors.rate_limit": "pass --ratelimit-key",
    "errors.faults": "pass --fault-header",
}


@asynccontextmanager
async def serving() -> AsyncIterator[Running]:
    """A gateway with a model for each kind of engine."""
    options = {"model": "glm", "reasoning": "glm", "images": True, "max_model_len": CAN["max_context"]}
    async with simulator("vllm", **options) as vllm, simulator("sglang", **options) as sglang:
        urls = zip(ENGINES, (vllm.server.url, sglang.server.url), strict=True)
        pools = [pool_of(url, name=engine, engine=engine, contract=CAN) for engine, url in urls]
        models = [{"name": engine, "pools": [engine]} for engine in ENGINES]
        config = config_of(pools, models=models, auth={"mode": "keys"}, tenants=[TENANT])
        async with gateway(config) as running:
            yield running


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with in_thread(serving()) as running:
        yield running.url


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("name", "check"), CHECKS, ids=[name for name, _ in CHECKS])
def test_check(name, check, engine, url):
    with Ctx(parser().parse_args([url, KEY, engine, "--long", "65536"])) as context:
        result, why = outcome(check, context)
    assert result in {"PASS", "SKIP"}, why
    assert (result == "SKIP") == (name in SKIPPED), why
    assert SKIPPED.get(name, "") in why
