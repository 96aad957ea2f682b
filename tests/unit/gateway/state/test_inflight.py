"""Two gateways tell each other what they have in flight."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from redis.asyncio import Redis

from backends.contracts import FleetSnapshot
from gateway.state.inflight import STREAM, InflightExchange
from policies.inflight import PEER_STALE_S, PeerLoad, PeerTable
from tests.unit.policies.routing.fleet import Watch, snapshot


class Gateway:
    """One side."""

    def __init__(self, name: str, url: str) -> None:
        self.fleet: FleetSnapshot = snapshot({"a": 2})
        self.peers = PeerTable()
        self.clock = Watch()
        self.wire = InflightExchange(url, name, lambda: self.fleet, self.peers, self.clock)


@pytest.fixture
async def pair(valkey: str) -> AsyncIterator[tuple[Gateway, Gateway]]:
    client: Redis = Redis.from_url(valkey)
    await client.delete(STREAM)
    await client.aclose()
    both = Gateway("x", valkey), Gateway("y", valkey)
    yield both
    for gateway in both:
        await gateway.wire.aclose()


async def heard(gateway: Gateway) -> None:
    """Take in one batch of news; fails when there is none within a second."""
    before = gateway.peers.version
    await gateway.wire.listen_once()
    assert gateway.peers.version > before


async def test_the_other_gateways_work_is_seen(pair: tuple[Gateway, Gateway]) -> None:
    x, y = pair
    x.fleet.table.exchanges[1], x.fleet.table.prefill_tokens[1], x.fleet.table.context_tokens[1] = 3, 500, 9000
    news = asyncio.create_task(heard(y))
    await asyncio.sleep(0.05)
    await x.wire.publish_once()
    await news
    assert y.peers.totals() == {"a/1": PeerLoad(3, 500, 9000)}


async def test_nobody_hears_himself(pair: tuple[Gateway, Gateway]) -> None:
    x, _ = pair
    news = asyncio.create_task(x.wire.listen_once())
    await asyncio.sleep(0.05)
    await x.wire.publish_once()
    await news
    assert len(x.peers) == 0


async def test_what_did_not_change_is_told_as_a_heartbeat_only(pair: tuple[Gateway, Gateway], valkey: str) -> None:
    x, _ = pair
    client: Redis = Redis.from_url(valkey)
    for _ in range(3):
        await x.wire.publish_once()
    assert await client.xlen(STREAM) == 1
    x.clock.now_s += 1.5
    await x.wire.publish_once()
    assert await client.xlen(STREAM) == 2
    await client.aclose()


async def test_rubbish_in_the_stream_is_passed_over(pair: tuple[Gateway, Gateway], valkey: str) -> None:
    x, y = pair
    client: Redis = Redis.from_url(valkey)
    news = asyncio.create_task(heard(y))
    await asyncio.sleep(0.05)
    async with client.pipeline() as pipeline:
        pipeline.xadd(STREAM, {"m": b"\xff"})
        pipeline.xadd(STREAM, {"other": b""})
        await pipeline.execute()
    await client.aclose()
    x.fleet.table.exchanges[0] = 1
    await x.wire.publish_once()
    with suppress(AssertionError):
        await news
    while not y.peers.totals():
        await y.wire.listen_once()
    assert y.peers.totals() == {"a/0": PeerLoad(1, 0, 0)}


async def test_a_gateway_that_falls_silent_counts_no_more(pair: tuple[Gateway, Gateway]) -> None:
    x, y = pair
    x.fleet.table.exchanges[0] = 5
    listening = asyncio.create_task(y.wire.listen())
    telling = asyncio.create_task(x.wire.publish())
    while not y.peers.totals():  # said again and again: what comes before the first look is not heard
        x.clock.now_s += 1.5
        await asyncio.sleep(0.02)
    telling.cancel()
    while y.peers.totals():  # what was said last may still be on its way, and counts from when it is heard
        y.clock.now_s += PEER_STALE_S + 1
        await asyncio.sleep(0.02)
    listening.cancel()
    await asyncio.gather(telling, listening, return_exceptions=True)


@pytest.mark.parametrize("steps", range(8))
async def test_listening_ends_whenever_it_is_cancelled(pair: tuple[Gateway, Gateway], steps: int) -> None:
    _, y = pair
    await y.wire.publish_once()  # connected: from here on a command takes the same steps of the loop each time
    listening = asyncio.create_task(y.wire.listen())
    for _ in range(steps):
        await asyncio.sleep(0)
    listening.cancel()
    await asyncio.wait({listening}, timeout=5.0)
    assert listening.cancelled()


async def test_without_redis_both_loops_go_on() -> None:
    alone = Gateway("x", "redis://127.0.0.1:1")
    tasks = [asyncio.create_task(alone.wire.publish()), asyncio.create_task(alone.wire.listen())]
    await asyncio.sleep(0.1)
    assert not any(task.done() for task in tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await alone.wire.aclose()
