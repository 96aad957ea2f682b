"""A smaller `make chaos` within one event loop, where tasks and loop errors can be counted too."""

from __future__ import annotations

import asyncio
import json
import random
import traceback
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from gateway.cli.children import free_ports
from gateway.config.model import Config
from tests.stress.chaos import ENGINES, MODEL, MODELS, REPLICAS, config
from tests.stress.clients import Client, Outcome, many
from tests.support.app import gateway
from tests.support.simulator import simulator

EXCHANGES = 600


@asynccontextmanager
async def replicas() -> AsyncIterator[dict[str, list[str]]]:
    """URLs of all simulated replicas by engine."""
    ports = free_ports(*[0] * len(REPLICAS) * len(ENGINES))
    urls: dict[str, list[str]] = {engine: [] for engine in ENGINES}
    async with AsyncExitStack() as stack:
        for seed, port in enumerate(ports):
            engine, fault = ENGINES[seed // len(REPLICAS)], REPLICAS[seed % len(REPLICAS)]
            options: dict[str, Any] = {"port": port, "model": MODEL, "fault": fault, "seed": seed}
            sim = await stack.enter_async_context(simulator(engine, profile="h200", time_scale=50.0, **options))
            urls[engine].append(sim.server.url)
        yield urls


def working() -> set[str]:
    """Names of the loop's tasks, without connection handlers of servers, which live as long as a connection."""
    tasks = asyncio.all_tasks()
    return {task.get_name() for task in tasks if "RequestHandler" not in repr(task.get_coro())}


def told(context: dict[str, Any]) -> str:
    """An error of the loop with the way to it."""
    error = context.get("exception")
    return f"{context['message']}: {''.join(traceback.format_exception(error)) if error else context}"


async def test_everything_comes_to_rest() -> None:
    loop, errors = asyncio.get_running_loop(), list[str]()
    loop.set_exception_handler(lambda _, context: errors.append(told(context)))
    async with replicas() as urls:
        tree = config(urls) | {"auth": {"mode": "open"}, "listen": {"port": 0, "admin_port": 0}}
        async with gateway(Config.model_validate(tree)) as running:
            async with running.chat({"model": MODELS[0]}):  # the first prompt makes the cache index and its tasks
                await running.settled()
            before, supervised = working(), len(running.app.supervisor)
            client = Client(running.client, running.url, MODELS)
            tally = await many(client, EXCHANGES, concurrency=48, rng=random.Random(5))
            await running.settled()
            async with asyncio.timeout(5.0):  # engines are still being told of what was given up
                while len(running.app.supervisor) > supervised or not working() <= before:
                    await asyncio.sleep(0.01)
    assert tally.broken == []
    assert "\n".join(errors) == ""
    assert min(tally.outcomes[kind] for kind in (Outcome.FULL, Outcome.REFUSED, Outcome.ENDED, Outcome.LEFT)) > 0
    lines = [json.loads(line)["request_id"] for line in b"".join(running.access_log).splitlines()]
    assert EXCHANGES * 0.9 < len(lines) == len(set(lines)) <= EXCHANGES + 1
