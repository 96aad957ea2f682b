"""What cache knowledge runs on: the index, its event feed and the service, and how a pool's hashes are learned.

Imported only where somebody asks where prompts are cached: the libraries behind it (ZeroMQ, CBOR) cost every other
gateway memory and a slower start.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import structlog

from backends.contracts import Clock
from tiering.chain import Layout
from tiering.events.decode import KvEvent, Stored
from tiering.events.discovery import Source
from tiering.events.feed import EventFeed
from tiering.events.verify import HashCheck
from tiering.hashing.memo import ChainHasher
from tiering.index.memory import Sizes
from tiering.index.prefix import PrefixIndex
from tiering.plan import Expected, PoolKv
from tiering.registration import detect, layout_of
from tiering.service import KvService
from tiering.truth.accuracy import Reported, Verdict

log = structlog.get_logger("headrace.kv")


@dataclass(frozen=True, slots=True)
class Core:
    """What takes memory."""

    index: PrefixIndex
    feed: EventFeed
    service: KvService

    def observe(self, expected: Expected, cached: int, prompt: int) -> Verdict:
        """What the engine said it had cached, and how long the prompt is, in tokens."""
        return self.service.observe(expected, Reported(cached, prompt))

    def learn(self, pool: PoolKv, engine: str, seed: str | None, events: Sequence[KvEvent]) -> None:
        """Learn a pool's hash scheme from its first events, then check it against all that follow."""
        if pool.check is None:
            _register(pool, engine, seed, events)
        if pool.check is None or pool.hasher is None:
            return
        pool.check.see(events)
        layout = layout_of(pool.check.groups, pool.hasher.scheme.block)
        if pool.check.groups and layout != pool.hasher.layout:
            pool.hasher = ChainHasher(pool.hasher.scheme, layout)


def open_core(
    blocks: int,
    clock: Clock,
    pools: Iterable[PoolKv],
    *,
    observe: Callable[[Source, Sequence[KvEvent]], None],
    report: Callable[[Source, str], None],
) -> Core:
    """An empty index of at least `blocks`, and what fills and reads it. `report` hears of lost events."""
    index = PrefixIndex.create(Sizes(blocks=blocks))
    feed = EventFeed(index, clock, observe=observe, report=report)
    return Core(index, feed, KvService(index, clock, tuple(pools), lost_at=feed.lost_at))


def _register(pool: PoolKv, engine: str, seed: str | None, events: Sequence[KvEvent]) -> None:
    for event in events:
        scheme = detect(engine, event, (seed,) if seed else ()) if isinstance(event, Stored) else None
        if scheme is not None:
            pool.check, pool.hasher = HashCheck(scheme), ChainHasher(scheme, Layout())
            log.info("KV hashes known", pool=pool.name, scheme=repr(scheme))
            return
