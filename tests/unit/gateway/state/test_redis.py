"""A Redis that is not there, or busy."""

import asyncio

import pytest
from redis.asyncio import Redis

from gateway.config.model import State
from gateway.state.base import Quota, StateUnavailable
from gateway.state.choose import open_store
from tests.support.clock import ManualClock


async def test_a_store_that_cannot_be_reached_says_so_and_then_at_once() -> None:
    clock = ManualClock()
    store = open_store(State(url="unix:///nonexistent/socket"), clock)
    assert not await store.ready()
    for call in (
        store.get("a"),
        store.put("a", b"", 1),
        store.delete("a"),
        store.touch(["a"], 1),
        store.add("a", 1, 1),
    ):
        with pytest.raises(StateUnavailable):
            await call
    await store.aclose()


async def test_it_comes_back(valkey: str) -> None:
    clock = ManualClock()
    store = open_store(State(url=valkey), clock)
    store._failed = clock.monotonic()
    assert not await store.ready()
    clock.advance(2.0)
    assert await store.ready()
    assert await store.put("back", b"1", 60)
    await store.aclose()


async def test_more_commands_than_connections_wait(valkey: str) -> None:
    store = open_store(State(url=valkey), ManualClock())
    await asyncio.gather(*(store.put(f"busy-{number}", b"1", 60) for number in range(300)))
    assert all(await store.get_many([f"busy-{number}" for number in range(300)]))
    await store.aclose()


@pytest.mark.parametrize("half", ["ages", "sizes"])
async def test_an_account_that_lost_a_half_goes_on(valkey: str, half: str) -> None:
    store, quota = open_store(State(url=valkey), ManualClock()), Quota(half, 3)
    server: Redis = Redis.from_url(valkey)
    for number in range(3):
        await store.put(f"{half}-{number}", b"1", 60, quota=quota)
    await server.delete(f"headrace:{half}:{half}")
    for number in range(3, 9):
        assert await store.put(f"{half}-{number}", b"1", 60, quota=quota)
    newest = await store.get_many([f"{half}-{number}" for number in range(6, 9)])
    assert all(newest)
    await server.aclose()
    await store.aclose()
