"""Where prompts are cached: one index, its event feed and the truth loop, behind the three calls of an exchange."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp
import structlog

from backends.contracts import Clock, FleetSnapshot, Replica
from backends.fleet import Fleet
from backends.supervisor import Supervisor
from gateway.config.model import Config, Pool
from gateway.dialects.base import Usage
from gateway.kv.sources import SourceFinder
from gateway.kv.status import KvStatus, PoolStatus, shown
from tiering.plan import PoolKv

if TYPE_CHECKING:
    from gateway.kv.core import Core
    from tiering.events.decode import KvEvent
    from tiering.events.discovery import Source
    from tiering.plan import Expected, Plan, Prompt
    from tiering.service import KvService
    from tiering.tokens import ChatTokenizer
    from tiering.truth.accuracy import Verdict

log = structlog.get_logger("headrace.kv")

_HOUSEKEEPING_S = 5.0


class KvCache:
    """The cache knowledge of one process. Everything runs in the event loop but the chains of very long prompts.

    A gateway none of whose policies ask, and that follows no events, never makes the index.
    """

    __slots__ = (
        "_blocks",
        "_clock",
        "_config",
        "_core",
        "_finder",
        "_fleet",
        "_pools",
        "_supervisor",
        "_tokenizers",
        "losses",
    )

    def __init__(self, config: Config, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._blocks = config.kv_index.blocks
        self._core: Core | None = None
        self._supervisor: Supervisor | None = None
        self._finder: SourceFinder | None = None
        self._pools: dict[str, PoolKv] = {}
        self._config: dict[str, Pool] = {}
        self._tokenizers: dict[tuple[str, str], ChatTokenizer | None] = {}  # by folder and engine
        self.losses = 0  # of events that could not be made good, since the start

    def load(self, config: Config, *, looks_up: bool) -> None:
        """Load the tokenizers of a configuration that `apply` will want. It takes long and may run in a thread.

        Those of no pool any more are let go. With `looks_up` (some policy asks where prompts are cached), the code
        for it is loaded here too, so that the first prompt does not wait for it.
        """
        if looks_up:
            import gateway.kv.core  # noqa: F401
        wanted = {_tokenizer_of(pool): pool.name for pool in config.pools if pool.tokenizer is not None}
        self._tokenizers = {key: self._tokenizers.get(key) or self._loaded(*key, pool) for key, pool in wanted.items()}

    def apply(self, config: Config) -> None:
        """Follow a configuration. Pools that stay as they were keep what is known of their hashes."""
        self._pools = {pool.name: self._pool(pool) for pool in config.pools}
        if self._core is not None:
            self._core.service.set_pools(self._pools.values())
        self._config = {pool.name: pool for pool in config.pools}
        self._follow()

    def start(self, session: aiohttp.ClientSession, supervisor: Supervisor) -> None:
        """Follow the engines' events from now on."""
        self._supervisor = supervisor
        self._finder = SourceFinder(self._fleet, session, self._found)
        supervisor.spawn(self._finder.run(), "KV event sources")
        if self._core is not None:
            self._run(self._core, supervisor)
        self._follow()

    # --- an exchange ---

    async def plan(self, snapshot: FleetSnapshot, pools: Sequence[str], prompt: Prompt) -> Plan:
        """Where the prompt is cached. Long prompts are hashed in a thread, so that streams do not wait for them."""
        service = self._opened().service
        if service.heavy(pools, prompt):
            prepared = await asyncio.to_thread(service.prepare, pools, prompt)
            return service.plan(snapshot, pools, prompt, prepared)
        return service.plan(snapshot, pools, prompt)

    def sent(self, plan: Plan, replica: Replica) -> Expected:
        """The prompt goes to `replica`."""
        return self._opened().service.sent(plan, replica)

    def observe(self, expected: Expected, usage: Usage | None) -> Verdict | None:
        """What the engine said it had cached; None when it does not tell."""
        if usage is None or usage.cached is None or usage.estimated:
            return None
        return self._opened().observe(expected, usage.cached, usage.prompt)

    def emptied(self, replica: str) -> None:
        """The replica's process has ended, or the replica has left the fleet: what it held is gone."""
        if self._core is not None:
            self._core.service.emptied(replica)

    # --- what is known ---

    def known(self) -> KvStatus:
        """The index, every publisher, and how well predictions hold."""
        core = self._core
        if core is None:
            nothing = (PoolStatus(name, "text", None, None, load_only=False) for name in self._pools)
            return KvStatus(tuple(nothing), self.losses)
        truth = core.service.truth
        pools = tuple(
            PoolStatus(
                name=name,
                lookup="exact" if pool.hasher is not None and pool.exact else "text",
                hash_match_ratio=pool.check.ratio if pool.check else None,
                accuracy=truth.accuracy(name),
                load_only=truth.demoted(name),
            )
            for name, pool in self._pools.items()
        )
        return KvStatus(
            pools,
            self.losses,
            blocks=core.index.live,
            capacity=self._blocks,
            nbytes=core.index.nbytes,
            sources=core.feed.status(),
            series=truth.series(),
            changes=core.service.told,
        )

    def status(self) -> dict[str, Any]:
        """The same for the admin API."""
        return shown(self.known(), self._clock.monotonic())

    # --- inside ---

    def _opened(self) -> Core:
        if self._core is None:
            from gateway.kv.core import open_core  # here: most policies never ask

            pools = self._pools.values()
            self._core = open_core(self._blocks, self._clock, pools, observe=self._see, report=self._lost)
            if self._supervisor is not None:
                self._run(self._core, self._supervisor)
        return self._core

    def _run(self, core: Core, supervisor: Supervisor) -> None:
        supervisor.spawn(core.feed.run(), "KV events")
        supervisor.spawn(self._keep_house(core.service), "KV housekeeping")

    def _found(self, sources: Sequence[Source]) -> None:
        self._opened().feed.set_sources(sources)

    def _follow(self) -> None:
        if self._finder is not None:
            self._finder.wanted = self._followed()

    def _followed(self) -> frozenset[str]:
        """Pools whose events help: without a tokenizer nothing could be looked up by engine hashes."""
        return frozenset(
            name for name, pool in self._config.items() if pool.kv_events.enabled and self._pools[name].tokenizer
        )

    def _pool(self, pool: Pool) -> PoolKv:
        if self._config.get(pool.name) == pool:
            return self._pools[pool.name]
        return PoolKv(pool.name, tokenizer=self._tokenizer(pool))

    def _tokenizer(self, pool: Pool) -> ChatTokenizer | None:
        return self._tokenizers.get(_tokenizer_of(pool))

    def _loaded(self, folder: str, engine: str, pool: str) -> ChatTokenizer | None:
        from tiering.tokens import ChatTokenizer  # here: few pools have a tokenizer

        try:
            return ChatTokenizer.load(Path(folder), self._clock, engine)
        except (OSError, ValueError, ImportError) as error:
            log.error("tokenizer not loaded; the pool is looked up by text", pool=pool, error=str(error))
            return None

    def _see(self, source: Source, events: Sequence[KvEvent]) -> None:
        """Learn from what the engines of a pool store how they hash."""
        core, member = self._core, self._fleet.member(source.replica)
        pool = self._pools.get(member.spec.name) if member is not None else None
        if core is not None and member is not None and pool is not None:
            core.learn(pool, member.spec.engine, self._config[pool.name].contract.hash_seed, events)

    def _lost(self, source: Source, reason: str) -> None:
        self.losses += 1
        log.warning("KV events lost", replica=source.replica, rank=source.rank, reason=reason)

    async def _keep_house(self, service: KvService) -> None:
        while True:
            await asyncio.sleep(_HOUSEKEEPING_S)
            service.expire()
            for change in service.changes():
                cause = change.cause.value if change.cause else ""
                log.warning("KV lookup changed", pool=change.pool, to=change.to, share=change.share, cause=cause)


def _tokenizer_of(pool: Pool) -> tuple[str, str]:
    """Folder and engine: engines put the parts of a message together in different ways."""
    return pool.tokenizer or "", pool.engine
