"""Watching replicas: cheap readiness of each kind, the served model, load. One task per replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

import aiohttp
import msgspec
import structlog

from backends.contracts import ReplicaState
from backends.counters import Counters
from backends.fleet import Fleet, Member
from backends.probing.client import read_body
from backends.supervisor import Supervisor

log = structlog.get_logger("headrace.health")

_MODELS_EVERY = 5  # probes; the served model changes only with a restart
_MISSES = 2  # failed probes in a row that take a replica out; a refused connection does so at once


class _Card(msgspec.Struct):
    id: str = ""


class _Models(msgspec.Struct):
    data: list[_Card] = []


class _Version(msgspec.Struct):
    version: str = ""


_models = msgspec.json.Decoder(_Models)
_version = msgspec.json.Decoder(_Version)


class CounterReader(Protocol):
    """Somebody who wants to know what engines count."""

    def wants(self, member: Member, *, asking: bool) -> bool:
        """Whether a look at its counters would be of use now. `asking`: it would take a request of its own."""
        ...

    def took(self, member: Member, counters: Counters) -> None:
        """One look."""
        ...


class HealthProber:
    """Probes every member of the fleet at its pool's pace until it leaves.

    `emptied` hears of replicas (by id) whose process holds nothing any more: it refuses connections, which a process
    that is merely busy does not do, or the member has left. It may hear of the same one again and again.
    """

    __slots__ = ("_counters", "_emptied", "_fleet", "_session", "_supervisor", "_tasks")

    def __init__(
        self,
        fleet: Fleet,
        session: aiohttp.ClientSession,
        supervisor: Supervisor,
        emptied: Callable[[str], None],
        counters: CounterReader | None = None,
    ) -> None:
        self._counters = counters
        self._fleet = fleet
        self._emptied = emptied
        self._session = session
        self._supervisor = supervisor
        self._tasks: dict[Member, asyncio.Task[None]] = {}

    def watch(self, joined: list[Member], left: list[Member]) -> None:
        """Follow a change of the fleet."""
        for member in left:
            if task := self._tasks.pop(member, None):
                task.cancel()
            self._emptied(member.id)  # the id may be another replica's by and by
        for member in joined:
            self._tasks[member] = self._supervisor.spawn(self._loop(member), f"probe {member.id}")

    async def _loop(self, member: Member) -> None:
        count = 0
        while True:
            state, reason = await self.probe(member, models=count % _MODELS_EVERY == 0)
            if self._fleet.set_state(member, state, reason):
                log.info("replica", replica=member.id, state=state.value, reason=reason)
            # A replica that is not ready yet is asked again soon, with its models.
            ready = state is ReplicaState.READY
            count = count + 1 if ready else 0
            await asyncio.sleep(member.spec.probe_interval_s if ready else min(0.5, member.spec.probe_interval_s))

    async def probe(self, member: Member, *, models: bool) -> tuple[ReplicaState, str]:
        """Ask one replica once. Returns the state it should have and why."""
        status = await self._status(member)
        if status == 0:
            self._emptied(member.id)
        if status != 200:
            member.probe_failures += 1
            if status == 0 or member.probe_failures >= _MISSES or member.state is not ReplicaState.READY:
                return ReplicaState.DOWN, "does not answer" if status <= 0 else f"readiness answers {status}"
        else:
            member.probe_failures = 0
            if models and (reason := await self._wrong_model(member)):
                return ReplicaState.HELD, reason
            await self._read_load(member)
        if reason := self._fleet.held_by_traffic(member):
            return ReplicaState.HELD, reason
        return ReplicaState.READY, ""

    async def _get(self, member: Member, path: str) -> tuple[int, bytes]:
        """Status and body; status 0 for a refused connection, -1 for any other way not to answer."""
        headers = {"Authorization": f"Bearer {member.spec.api_key}"} if member.spec.api_key else {}
        timeout = aiohttp.ClientTimeout(total=member.spec.probe_timeout_s)
        try:
            async with self._session.get(member.url.rstrip("/") + path, headers=headers, timeout=timeout) as answer:
                return answer.status, await read_body(answer)
        except aiohttp.ClientConnectorError:
            return 0, b""
        except (aiohttp.ClientError, TimeoutError, OSError):
            return -1, b""

    async def _status(self, member: Member) -> int:
        return (await self._get(member, member.kind.spec.ready_path))[0]

    async def _wrong_model(self, member: Member) -> str:
        status, body = await self._get(member, "/v1/models")
        if status != 200:
            return f"/v1/models answers {status}" if status > 0 else "/v1/models does not answer"
        try:
            names = [card.id for card in _models.decode(body).data]
        except (msgspec.DecodeError, RecursionError):
            return "/v1/models is not a model list"
        if member.spec.model not in names:
            return f"does not serve {member.spec.model!r} but {', '.join(names) or 'nothing'}"
        status, body = await self._get(member, "/version")
        if status == 200:
            try:
                self._fleet.report(member, member.load, _version.decode(body).version)
            except (msgspec.DecodeError, RecursionError):
                log.debug("no version in /version", replica=member.id)
        return ""

    async def _read_load(self, member: Member) -> None:
        path = member.kind.spec.load_path
        if not path:
            return
        status, body = await self._get(member, path)
        if status == 200:
            self._fleet.report(member, member.kind.parse_load(body, self._fleet.clock.monotonic()))
            await self._read_counters(member, body)

    async def _read_counters(self, member: Member, load: bytes) -> None:
        """Look at the counters, in the body of the load where they are in it."""
        spec, reader = member.kind.spec, self._counters
        asking = spec.counters_path != spec.load_path
        if reader is None or not spec.counters_path or not reader.wants(member, asking=asking):
            return
        status, body = await self._get(member, spec.counters_path) if asking else (200, load)
        if status == 200:
            reader.took(member, member.kind.parse_counters(body))
