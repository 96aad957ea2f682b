"""The event feed over real sockets: publishers that drop, restart, replay and flood."""

from __future__ import annotations

import asyncio
import contextlib
import random
import threading
import time
from collections.abc import AsyncIterator, Callable

import msgspec
import numpy as np
import pytest
import zmq

from backends.contracts import Clock
from tiering.events.discovery import Source
from tiering.events.feed import EventFeed
from tiering.events.tracker import Phase
from tiering.index.memory import Sizes
from tiering.index.prefix import PrefixIndex


class Monotonic:
    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


class Publisher:
    """A publisher as engines have it: PUB, and a replay socket served by a thread."""

    def __init__(self, ports: tuple[int, int] | None = None, *, clock_s: float = 1000.0) -> None:
        self.context = zmq.Context()
        self.pub = self.context.socket(zmq.PUB)
        self.router = self.context.socket(zmq.ROUTER)
        bind = ports or (0, 0)
        for socket, port in zip((self.pub, self.router), bind, strict=True):
            socket.setsockopt(zmq.LINGER, 0)
            socket.bind(f"tcp://127.0.0.1:{port or '*'}")
        self.ports = tuple(
            int(s.getsockopt_string(zmq.LAST_ENDPOINT).rpartition(":")[2]) for s in (self.pub, self.router)
        )
        self.buffer: list[bytes] = []
        self.clock_s = clock_s
        self.stopping = threading.Event()
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    @property
    def source(self) -> Source:
        return Source("p/0", 0, f"tcp://127.0.0.1:{self.ports[0]}", f"tcp://127.0.0.1:{self.ports[1]}")

    def publish(self, *events: dict, drop: bool = False) -> None:
        self.clock_s += 1
        body = msgspec.msgpack.encode([self.clock_s, list(events), 0])
        self.buffer.append(body)
        if not drop:
            self.pub.send_multipart([b"kv", (len(self.buffer) - 1).to_bytes(8, "big"), body])

    def store(self, *blocks: int, drop: bool = False) -> None:
        self.publish({"type": "BlockStored", "block_hashes": list(blocks), "medium": "GPU"}, drop=drop)

    def remove(self, *blocks: int, drop: bool = False) -> None:
        self.publish({"type": "BlockRemoved", "block_hashes": list(blocks), "medium": "GPU"}, drop=drop)

    def serve(self) -> None:
        while not self.stopping.is_set():
            if not self.router.poll(20):
                continue
            peer, _, start = self.router.recv_multipart()
            for seq in range(int.from_bytes(start, "big"), len(self.buffer)):
                self.router.send_multipart([peer, b"", b"kv", seq.to_bytes(8, "big"), self.buffer[seq]])
            self.router.send_multipart([peer, b"", b"", b"\xff" * 8, b""])

    def stop(self) -> None:
        self.stopping.set()
        self.thread.join()
        self.context.destroy(linger=0)


def blocks(count: int, seed: int = 1) -> list[int]:
    return [random.Random(f"{seed}/{i}").getrandbits(64) for i in range(count)]


def held(index: PrefixIndex, keys: list[int]) -> list[bool]:
    return index.holds("p/0", np.array(keys, np.uint64)).tolist()


async def until(condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def following(index: PrefixIndex, *sources: Source) -> AsyncIterator[tuple[EventFeed, list[str]]]:
    clock: Clock = Monotonic()
    lost: list[str] = []
    feed = EventFeed(index, clock, report=lambda _source, reason: lost.append(reason))
    feed.set_sources(sources)
    task = asyncio.create_task(feed.run())
    try:
        yield feed, lost
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


@pytest.fixture
def index() -> PrefixIndex:
    return PrefixIndex.create(Sizes(blocks=20_000, sets=64, holders=64))


@pytest.fixture
def publisher() -> AsyncIterator[Publisher]:
    publisher = Publisher()
    yield publisher
    publisher.stop()


async def live(feed: EventFeed) -> None:
    await until(lambda: bool(feed.status()) and all(item.phase is Phase.LIVE for item in feed.status()))


async def test_what_was_published_before_is_replayed_and_the_rest_followed(
    index: PrefixIndex, publisher: Publisher
) -> None:
    keys = blocks(20)
    publisher.store(*keys[:10])
    async with following(index, publisher.source) as (feed, lost):
        await live(feed)
        assert held(index, keys) == [True] * 10 + [False] * 10
        publisher.store(*keys[10:])
        publisher.remove(*keys[:5])
        await until(lambda: held(index, keys) == [False] * 5 + [True] * 15)
        assert lost == []


async def test_a_gap_is_closed_from_the_replay_buffer(index: PrefixIndex, publisher: Publisher) -> None:
    keys = blocks(20)
    async with following(index, publisher.source) as (feed, lost):
        publisher.store(*keys[:10])
        await until(lambda: all(held(index, keys[:10])))
        publisher.remove(*keys[:5], drop=True)
        publisher.store(*keys[10:])
        await until(lambda: held(index, keys) == [False] * 5 + [True] * 15)
        assert feed.status()[0].counts.gaps == 1
        assert lost == []
        assert feed.lost_at("p/0") is None


async def test_a_gap_without_replay_forgets_the_replica(index: PrefixIndex, publisher: Publisher) -> None:
    keys = blocks(20)
    source = Source("p/0", 0, publisher.source.endpoint)
    async with following(index, source) as (feed, lost):

        def heard() -> bool:
            publisher.store(*keys[:10])
            return any(held(index, keys[:10]))

        await until(heard)  # a subscription takes a moment to arrive
        publisher.remove(*keys[:5], drop=True)
        publisher.store(*keys[10:])
        await until(lambda: held(index, keys) == [False] * 10 + [True] * 10)
        assert lost == ["gap"]
        assert feed.lost_at("p/0") is not None


async def test_a_restarted_engine_is_empty(index: PrefixIndex, publisher: Publisher) -> None:
    keys = blocks(20)
    async with following(index, publisher.source) as (feed, lost):
        publisher.store(*keys[:10])
        publisher.store(*keys[10:15])
        await until(lambda: all(held(index, keys[:15])))
        publisher.stop()
        again = Publisher(publisher.ports, clock_s=publisher.clock_s)
        try:
            # It has published more than the first process by the time we are back.
            for key in keys[15:]:
                again.store(key)
            await until(lambda: held(index, keys) == [False] * 15 + [True] * 5)
            assert feed.status()[0].counts.restarts == 1
            assert lost == ["restart"]
        finally:
            again.stop()


async def test_replicas_no_longer_followed_are_forgotten(index: PrefixIndex, publisher: Publisher) -> None:
    keys = blocks(5)
    async with following(index, publisher.source) as (feed, _):
        publisher.store(*keys)
        await until(lambda: all(held(index, keys)))
        feed.set_sources([])
        await until(lambda: not any(held(index, keys)))
        assert feed.status() == ()


async def test_nothing_is_believed_once_the_feed_has_ended(index: PrefixIndex, publisher: Publisher) -> None:
    keys = blocks(5)
    async with following(index, publisher.source):
        publisher.store(*keys)
        await until(lambda: all(held(index, keys)))
    assert not any(held(index, keys))


async def test_a_flood_leaves_the_loop_to_others(index: PrefixIndex, publisher: Publisher) -> None:
    async with following(index, publisher.source) as (feed, _):
        await live(feed)
        turns = 0

        async def others() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        task = asyncio.create_task(others())
        for number in range(1500):
            publisher.store(*blocks(4, seed=number))
        last = blocks(4, seed=1499)
        await until(lambda: all(held(index, last)), 30)
        task.cancel()
        assert turns >= 1500 / 64 / 2
        assert feed.status()[0].counts.batches <= 1500


async def test_an_endpoint_that_is_none_is_reported(index: PrefixIndex) -> None:
    async with following(index, Source("p/0", 0, "nonsense")) as (feed, lost):
        await until(lambda: bool(lost))
        assert feed.status() == ()
