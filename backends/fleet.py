"""The fleet: one writer of what is known of every replica, and the leases of exchanges in flight."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from backends.client import EnginePool
from backends.contracts import (
    Clock,
    EngineFailure,
    Fault,
    FleetSnapshot,
    Load,
    LoadTable,
    Replica,
    ReplicaState,
)
from backends.engines.base import EngineKind, Registry


@dataclass(frozen=True, slots=True)
class PoolSpec:
    """What the fleet needs to know of a pool."""

    name: str
    engine: str
    model: str
    urls: tuple[str, ...]
    api_key: str | None = None
    connect_s: float = 3.0
    probe_interval_s: float = 2.0
    probe_timeout_s: float = 2.0
    breaker_failures: int = 5  # in a row; 0 switches the breaker off
    breaker_open_s: float = 10.0
    silent_s: float = 60.0  # busy, yet not one byte for any exchange for so long: no new exchanges


class Member:
    """One replica as the fleet keeps it. Only `Fleet` and the prober change it."""

    __slots__ = (
        "connections",
        "failures",
        "id",
        "kind",
        "leases",
        "load",
        "open_until_s",
        "probe_failures",
        "progress_s",
        "reason",
        "row",
        "spec",
        "state",
        "url",
        "version",
        "waiting",
    )

    def __init__(self, member_id: str, url: str, spec: PoolSpec, kind: EngineKind) -> None:
        self.id = member_id
        self.url = url
        self.spec = spec
        self.kind = kind
        self.connections = EnginePool(url, connect_s=spec.connect_s, idle_limit_s=kind.spec.idle_limit_s)
        self.state = ReplicaState.STARTING
        self.reason = "not probed yet"
        self.load = Load()
        self.version = ""
        self.row = -1
        self.leases = 0
        self.waiting = 0  # leases of streams without a first token
        self.failures = 0  # of live traffic, in a row
        self.probe_failures = 0
        self.open_until_s = 0.0
        self.progress_s = 0.0  # when live traffic last got a byte, or last had none to wait for


class Lease:
    """Counts one attempt against its replica until released. Both calls may be repeated."""

    __slots__ = ("_context", "_fleet", "_held", "_prefill", "_streams", "_waiting", "member")

    def __init__(
        self, fleet: Fleet, member: Member, prefill_tokens: int, context_tokens: int, *, streams: bool
    ) -> None:
        self._fleet = fleet
        self.member = member
        self._prefill = prefill_tokens
        self._context = context_tokens
        self._held = True
        self._waiting = True
        self._streams = streams
        fleet._count(member, 1, prefill_tokens, context_tokens)
        member.leases += 1
        member.waiting += streams

    def first_token(self, now_s: float) -> None:
        """The prefill is over: its tokens no longer queue ahead of anybody."""
        member = self.member
        member.progress_s = now_s
        if self._waiting:
            self._waiting = False
            member.waiting -= self._streams
            self._fleet._count(member, 0, -self._prefill, 0)

    def release(self) -> None:
        """The attempt is over, however it ended."""
        if not self._held:
            return
        self._held = False
        prefill = 0
        member = self.member
        if self._waiting:
            self._waiting = False
            member.waiting -= self._streams
            prefill = self._prefill
        member.leases -= 1
        self._fleet._count(member, -1, -prefill, -self._context)
        if member.row < 0 and not member.leases:
            member.connections.close()


class Fleet:
    """All replicas. Readers take `snapshot()`, which is rebuilt only when something but a counter changed."""

    __slots__ = ("_by_id", "_kinds", "_members", "_snapshot", "_table", "_version", "clock")

    def __init__(self, kinds: Registry, clock: Clock) -> None:
        self._kinds = kinds
        self.clock = clock
        self._members: dict[tuple[str, str], Member] = {}
        self._by_id: dict[str, Member] = {}
        self._table = LoadTable(0)
        self._version = 0
        self._snapshot: FleetSnapshot | None = None

    def __iter__(self) -> Iterator[Member]:
        return iter(tuple(self._members.values()))

    def __len__(self) -> int:
        return len(self._members)

    def apply(self, specs: Iterable[PoolSpec]) -> tuple[list[Member], list[Member]]:
        """Bring the members in line with `specs`; returns those that joined and those that left.

        A replica whose pool and URL stay keeps its identity, state and counters. One that left finishes its leases.
        """
        wanted = {(spec.name, url): spec for spec in specs for url in spec.urls}
        left = [member for key, member in self._members.items() if key not in wanted]
        kept = {
            key: member
            for key, member in self._members.items()
            if key in wanted and member.spec.engine == wanted[key].engine
        }
        left.extend(m for key, m in self._members.items() if key in wanted and key not in kept)
        taken = {member.id for member in kept.values()}
        joined: list[Member] = []
        members: dict[tuple[str, str], Member] = {}
        for key, spec in wanted.items():
            member = kept.get(key)
            if member is None:
                member = Member(_free_id(spec.name, taken), key[1], spec, self._kinds[spec.engine])
                taken.add(member.id)
                joined.append(member)
            member.spec = spec
            member.connections.connect_s = spec.connect_s
            members[key] = member
        self._reseat(members, left)
        return joined, left

    def _reseat(self, members: dict[tuple[str, str], Member], left: list[Member]) -> None:
        old, table = self._table, LoadTable(len(members))
        for row, member in enumerate(members.values()):
            if member.row >= 0:
                table.exchanges[row] = old.exchanges[member.row]
                table.prefill_tokens[row] = old.prefill_tokens[member.row]
                table.context_tokens[row] = old.context_tokens[member.row]
            member.row = row
        for member in left:
            member.row = -1
            if not member.leases:
                member.connections.close()
        self._members = members
        self._by_id = {member.id: member for member in members.values()}
        self._table = table
        self._snapshot = None

    def snapshot(self) -> FleetSnapshot:
        """The fleet now. Cheap when nothing changed since the last call."""
        if self._snapshot is None:
            self._version += 1
            replicas = tuple(_view(member) for member in self._members.values())
            pools: dict[str, list[Replica]] = {}
            for replica in replicas:
                pools.setdefault(replica.pool, []).append(replica)
            by_pool: Mapping[str, tuple[Replica, ...]] = {name: tuple(group) for name, group in pools.items()}
            self._snapshot = FleetSnapshot(self._version, replicas, by_pool, self._table)
        return self._snapshot

    def member(self, replica_id: str) -> Member | None:
        """The member behind a replica of a snapshot; None when it has left since."""
        return self._by_id.get(replica_id)

    def lease(self, member: Member, prefill_tokens: int, context_tokens: int, *, streams: bool) -> Lease:
        """Count one attempt: `prefill_tokens` uncached prompt tokens of `context_tokens` in all.

        Only one that `streams` tells a replica that hangs from one that works: a whole answer is silent until its end,
        and has the time limit of its own.
        """
        if not member.waiting:
            member.progress_s = self.clock.monotonic()
        return Lease(self, member, prefill_tokens, context_tokens, streams=streams)

    def _count(self, member: Member, exchanges: int, prefill: int, context: int) -> None:
        row = member.row
        if row < 0:
            return
        table = self._table
        if exchanges:
            table.exchanges[row] += exchanges
        if prefill:
            table.prefill_tokens[row] += prefill
        if context:
            table.context_tokens[row] += context

    # --- health ---

    def succeeded(self, member: Member) -> None:
        """Live traffic got a whole answer."""
        member.failures = 0

    def failed(self, member: Member, failure: EngineFailure) -> None:
        """Live traffic got none. A client's own fault, a stale connection and a full queue are no illness."""
        if failure.fault in (Fault.CLIENT, Fault.STALE, Fault.OVERLOADED, Fault.ANSWER):
            return
        member.failures += 1
        limit = member.spec.breaker_failures
        if limit and member.failures >= limit:
            member.failures = limit - 1  # after the pause one more failure is enough
            member.open_until_s = self.clock.monotonic() + member.spec.breaker_open_s
            self.set_state(member, ReplicaState.HELD, f"{limit} failures in a row, last: {failure.fault.value}")

    def set_state(self, member: Member, state: ReplicaState, reason: str = "") -> bool:
        """Record what the prober or the breaker found; True when it is news."""
        if member.state is state and member.reason == reason:
            return False
        member.state, member.reason = state, reason
        self._snapshot = None
        return True

    def report(self, member: Member, load: Load, version: str | None = None) -> None:
        """Record what an engine says of itself."""
        member.load = load
        if version is not None:
            member.version = version
        self._snapshot = None

    def held_by_traffic(self, member: Member) -> str:
        """Why live traffic keeps a replica out although its probe is fine; "" when it does not."""
        now = self.clock.monotonic()
        if member.open_until_s > now:
            return member.reason or "failures in a row"
        if member.waiting and now - member.progress_s > member.spec.silent_s:
            return f"busy, but silent for {member.spec.silent_s:g} s"
        return ""


def _free_id(pool: str, taken: set[str]) -> str:
    number = 0
    while f"{pool}/{number}" in taken:
        number += 1
    return f"{pool}/{number}"


def _view(member: Member) -> Replica:
    return Replica(
        id=member.id,
        pool=member.spec.name,
        url=member.url,
        row=member.row,
        state=member.state,
        load=member.load,
        version=member.version,
        reason=member.reason,
    )
