"""Where the replicas of the fleet publish their KV events, asked again whenever a replica comes back or changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import aiohttp
import structlog

from backends.contracts import ReplicaState
from backends.fleet import Fleet, Member
from tiering.events.discovery import Source, sglang_sources, vllm_sources

log = structlog.get_logger("headrace.kv")

Reader = Callable[[str, str, Mapping[str, Any]], Sequence[Source]]
# Path that tells, and how to read it, by engine kind. A kind that is not here publishes no events.
READERS: Final[Mapping[str, tuple[str, Reader]]] = {
    "vllm": ("/kv_event_sources", vllm_sources),
    "sglang": ("/server_info", sglang_sources),
    "nim": ("/server_info", sglang_sources),
}
_LOOK_S = 1.0
_ASK_S = 5.0
_ASK_AGAIN_S = 60.0  # a replica that said it publishes nothing


class SourceFinder:
    """Keeps the list of sources; `found` hears of every change of it."""

    __slots__ = ("_asked", "_fleet", "_found", "_session", "_sources", "wanted")

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, found: Callable[[list[Source]], None]) -> None:
        self._fleet = fleet
        self._session = session
        self._found = found
        self._asked: dict[str, tuple[str, str, float]] = {}  # replica -> URL, version and time of the last answer
        self._sources: dict[str, tuple[Source, ...]] = {}
        self.wanted: frozenset[str] = frozenset()  # pools whose events are followed

    async def run(self) -> None:
        """Look for what is new, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(_LOOK_S)

    async def step(self) -> None:
        """Ask replicas that are ready and not asked yet; drop those that have left."""
        members = {member.id: member for member in self._fleet if member.spec.name in self.wanted}
        before = dict(self._sources)
        for replica in self._asked.keys() - members.keys():
            del self._asked[replica]
            self._sources.pop(replica, None)
        for member in members.values():
            if member.state is ReplicaState.READY and self._due(member):
                await self._ask(member)
        if self._sources != before:
            self._found([source for sources in self._sources.values() for source in sources])

    def _due(self, member: Member) -> bool:
        url, version, at_s = self._asked.get(member.id, ("", "", 0.0))
        if (url, version) != (member.url, member.version):
            return True
        return not self._sources.get(member.id) and self._fleet.clock.monotonic() - at_s > _ASK_AGAIN_S

    async def _ask(self, member: Member) -> None:
        path, read = READERS.get(member.spec.engine, ("", None))
        if read is None:
            return
        key = member.spec.api_key
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            async with asyncio.timeout(_ASK_S):
                async with self._session.get(member.url.rstrip("/") + path, headers=headers) as answer:
                    body = await answer.json(content_type=None) if answer.status == 200 else {}
            sources = tuple(read(member.id, member.url, body))
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError, AttributeError) as error:
            log.info("event sources not told", replica=member.id, error=repr(error))
            sources = ()
        self._asked[member.id] = (member.url, member.version, self._fleet.clock.monotonic())
        self._sources[member.id] = sources
