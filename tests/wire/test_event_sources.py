"""The finder of event sources before engines that answer oddly, endlessly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from backends.contracts import ReplicaState
from backends.engines import builtin
from backends.fleet import Fleet, PoolSpec
from gateway.kv import sources
from gateway.kv.sources import SourceFinder
from tests.support.clock import ManualClock
from tiering.events.discovery import Source

GOOD = b'{"0": {"enable_kv_cache_events": true, "publisher": "zmq", "endpoint": "tcp://*:5557"}}'


def engine(answer: bytes | None, *, status: int = 200, hang: asyncio.Event | None = None) -> web.Application:
    """Tells `answer`; None: never stops telling."""

    async def tell(request: web.Request) -> web.StreamResponse:
        if hang is not None:
            await hang.wait()
        if answer is not None:
            return web.Response(body=answer, status=status, content_type="application/json")
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b"[" * 65536)

    app = web.Application()
    app.router.add_get("/kv_event_sources", tell)
    return app


class World:
    def __init__(self, fleet: Fleet, clock: ManualClock, session: aiohttp.ClientSession) -> None:
        self.fleet, self.clock = fleet, clock
        self.heard: list[list[Source]] = []
        self.finder = SourceFinder(fleet, session, self.heard.append)
        self.finder.wanted = frozenset({"p"})

    @property
    def replicas(self) -> list[str]:
        """Who has a source, by the last word."""
        return [source.replica for source in self.heard[-1]] if self.heard else []


@asynccontextmanager
async def world(engines: Mapping[str, web.Application]) -> AsyncIterator[tuple[World, list[str]]]:
    """A fleet of these engines, all ready; and the ids of its replicas by their names."""
    clock = ManualClock()
    fleet = Fleet(builtin(), clock)
    async with AsyncExitStack() as stack:
        servers = [await stack.enter_async_context(TestServer(app)) for app in engines.values()]
        session = await stack.enter_async_context(aiohttp.ClientSession())
        fleet.apply([PoolSpec("p", "vllm", "glm", tuple(f"http://127.0.0.1:{server.port}" for server in servers))])
        for member in fleet:
            fleet.set_state(member, ReplicaState.READY)
        yield World(fleet, clock, session), [member.id for member in fleet]


@pytest.mark.parametrize(
    ("odd", "status"),
    [(b'{"0": null}', 200), (b"[]", 200), (b"7", 200), (b'{"0": {"topic": 5}}', 200), (b"[" * 100_000, 200),
     (b"", 200), (b"<html>", 404), (GOOD, 500)],
)  # fmt: skip
async def test_an_odd_answer_is_none_and_the_others_are_followed(odd: bytes, status: int) -> None:
    async with world({"odd": engine(odd, status=status), "good": engine(GOOD)}) as (here, ids):
        await here.finder.step()
        assert here.replicas == ids[1:]
        await here.finder.step()
        assert len(here.heard) == 1


async def test_an_endless_answer_is_cut() -> None:
    async with world({"endless": engine(None), "good": engine(GOOD)}) as (here, ids):
        async with asyncio.timeout(sources._ASK_S):
            await here.finder.step()
        assert here.replicas == ids[1:]


async def test_a_replica_that_does_not_answer_keeps_nobody_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "_ASK_S", 0.5)
    never = asyncio.Event()
    engines = {f"mute {number}": engine(GOOD, hang=never) for number in range(4)}
    async with world({**engines, "good": engine(GOOD)}) as (here, ids):
        step = asyncio.create_task(here.finder.step())
        async with asyncio.timeout(0.45):
            while here.replicas != ids[4:]:
                await asyncio.sleep(0.005)
        async with asyncio.timeout(1.5):  # all at once, not one after the other
            await step
        never.set()
        here.clock.advance(61.0)
        await here.finder.step()
        assert sorted(here.replicas) == sorted(ids)


async def test_a_replica_that_leaves_takes_its_sources_along() -> None:
    async with world({"good": engine(GOOD)}) as (here, ids):
        await here.finder.step()
        assert here.replicas == ids
        here.finder.wanted = frozenset()
        await here.finder.step()
        assert here.replicas == []
