"""Where the replicas of the fleet publish their KV events, asked again whenever a replica comes back or changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import aiohttp
import structlog

from backends.contracts import ReplicaState
from backends.fleet import Fleet, Member
from backends.probing import AiohttpProbe, Answer
from tiering.events.discovery import Source, sglang_sources, vllm_sources

log = structlog.get_logger("headrace.kv")

Reader = Callable[[str, str, bytes], Sequence[Source]]
# Path that tells, and how to read it, by engine kind. A kind that is not here publishes no events.
READERS: Final[Mapping[str, tuple[str, Reader]]] = {
    "vllm": ("/kv_event_sources", vllm_sources),
    "sglang": ("/server_info", sglang_sources),
    "nim": ("/server_info", sglang_sources),
}
_LOOK_S = 1.0
_ASK_S = 5.0
_ASK_AGAIN_S = 60.0  # a replica that said it publishes nothing
_AT_ONCE = 16  # replicas asked at a time


class SourceFinder:
    """Keeps the list of sources; `found` hears of every change of it."""

    __slots__ = ("_asked", "_fleet", "_found", "_room", "_session", "_sources", "_told", "wanted")

    def __init__(self, fleet: Fleet, session: aiohttp.ClientSession, found: Callable[[list[Source]], None]) -> None:
        self._fleet = fleet
        self._session = session
        self._found = found
        self._room = asyncio.Semaphore(_AT_ONCE)
        self._asked: dict[str, tuple[str, str, float]] = {}  # replica -> URL, version and time of the last answer
        self._sources: dict[str, tuple[Source, ...]] = {}
        self._told: list[Source] = []
        self.wanted: frozenset[str] = frozenset()  # pools whose events are followed

    async def run(self) -> None:
        """Look for what is new, until cancelled."""
        while True:
            await self.step()
            await asyncio.sleep(_LOOK_S)

    async def step(self) -> None:
        """Drop replicas that have left; ask those that are ready and not asked yet, all at once.

        One that does not answer keeps none of the others waiting: each is told as soon as it has answered.
        """
        members = {member.id: member for member in self._fleet if member.spec.name in self.wanted}
        for replica in self._asked.keys() - members.keys():
            del self._asked[replica]
            self._sources.pop(replica, None)
        self._tell()
        async with asyncio.TaskGroup() as group:
            for member in members.values():
                if member.state is ReplicaState.READY and member.spec.engine in READERS and self._due(member):
                    group.create_task(self._ask(member))

    def _due(self, member: Member) -> bool:
        url, version, at_s = self._asked.get(member.id, ("", "", 0.0))
        if (url, version) != (member.url, member.version):
            return True
        return not self._sources.get(member.id) and self._fleet.clock.monotonic() - at_s > _ASK_AGAIN_S

    async def _ask(self, member: Member) -> None:
        path, read = READERS[member.spec.engine]
        url, version = member.url, member.version
        async with self._room:
            client = AiohttpProbe(self._session, url, api_key=member.spec.api_key, timeout_s=_ASK_S)
            answer = await client.get(path)
        self._asked[member.id] = (url, version, self._fleet.clock.monotonic())
        self._sources[member.id] = _read(member.id, url, answer, read)
        self._tell()

    def _tell(self) -> None:
        sources = [source for sources in self._sources.values() for source in sources]
        if sources != self._told:
            self._told = sources
            self._found(sources)


def _read(replica: str, url: str, answer: Answer, read: Reader) -> tuple[Source, ...]:
    """What an answer says; nothing when it is none that an engine gives."""
    if answer.status != 200:
        log.info("event sources not told", replica=replica, status=answer.status)
        return ()
    try:
        return tuple(read(replica, url, answer.body))
    except (ValueError, RecursionError) as error:
        log.warning("event sources not understood", replica=replica, error=repr(error))
        return ()
