"""The simulated fleet of a replay: engines under a virtual clock, and the fleet snapshot that a router sees of them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from urllib.parse import urlsplit

import numpy as np
from numpy.typing import NDArray

from backends.contracts import TIERS, FleetSnapshot, LoadTable, Replica, ReplicaState
from backends.located import Located
from backends.profiles import EngineName, Profile, load_profile
from backends.simulator.engine import SGLANG, VLLM, Engine
from backends.simulator.kvcache import FsStore
from backends.simulator.requests import Progress, SimRequest


@dataclass(frozen=True, slots=True)
class SimPool:
    """A pool to simulate. `profile` overrides the hardware's own, e.g. with smaller caches."""

    name: str
    engine: EngineName
    hardware: str
    urls: tuple[str, ...]
    gpus: int = 1
    weight: float = 1.0
    price_per_gpu_hour: float = 1.0
    obeys_load_tiers: bool = True
    profile: Profile | None = None

    def physics(self, block_tokens: int) -> Profile:
        """The profile, keeping KV in blocks of the trace's size."""
        return replace(self.profile or load_profile(self.hardware, self.engine), block_tokens=block_tokens)


class VirtualClock:
    """Time that moves only when the replay says so."""

    __slots__ = ("now_s",)

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Seconds since the trace began."""
        return self.now_s

    def time(self) -> float:
        """The same: a replay has no calendar."""
        return self.now_s


class World:
    """All simulated replicas. Row i of the snapshot is `engines[i]`."""

    def __init__(self, pools: Sequence[SimPool], block_tokens: int) -> None:
        self.clock = VirtualClock()
        self.pools = tuple(pools)
        self.block_tokens = block_tokens
        self.engines: list[Engine] = []
        self.gpus: list[int] = []
        self.busy_s: list[float] = []
        self._busy_since: list[float | None] = []
        self._due: list[float] = []
        replicas: list[Replica] = []
        disks: dict[tuple[str, str], FsStore] = {}
        for pool in pools:
            profile = pool.physics(block_tokens)
            scheduling = VLLM if pool.engine == "vllm" else SGLANG
            for number, url in enumerate(pool.urls):
                host = urlsplit(url).hostname or url
                if profile.fs is not None and (pool.name, host) not in disks:
                    disks[pool.name, host] = FsStore(profile.fs, block_tokens)
                self.engines.append(Engine(profile, scheduling, fs=disks.get((pool.name, host))))
                self.gpus.append(pool.gpus)
                row = len(replicas)
                replicas.append(Replica(f"{pool.name}/{number}", pool.name, url, row, ReplicaState.READY))
        count = len(replicas)
        self.busy_s = [0.0] * count
        self._busy_since = [None] * count
        self._due = [math.inf] * count
        self.table = LoadTable(count)
        by_pool = {pool.name: tuple(r for r in replicas if r.pool == pool.name) for pool in pools}
        self.snapshot = FleetSnapshot(1, tuple(replicas), by_pool, self.table)

    def locate(self, request: SimRequest) -> Located:
        """What a perfect prefix index would say now."""
        held: NDArray[np.int64] = np.zeros((len(TIERS), len(self.engines)), dtype=np.int64)
        for row, engine in enumerate(self.engines):
            found = engine.located(request)
            held[:, row] = found.gpu, found.host, found.fs, 0
        return Located(held.cumsum(axis=0))

    def submit(self, row: int, request: SimRequest) -> None:
        """Send a request to a replica at the clock's time."""
        now = self.clock.now_s
        self.engines[row].submit(request, now)
        if self._busy_since[row] is None:
            self._busy_since[row] = now
        self._due[row] = self.engines[row].next_event_time()

    def next_event_time(self) -> float:
        """When the next replica has something to report; infinity when all are idle."""
        return min(self._due)

    def advance(self, until_s: float) -> Iterator[tuple[int, Progress]]:
        """Let the replicas work up to `until_s`; yields what they report, in time order, with the clock at its time."""
        while True:
            at = min(self._due)
            if at > until_s or math.isinf(at):
                break
            row = self._due.index(at)
            engine = self.engines[row]
            for progress in engine.advance(at):
                self.clock.now_s = max(self.clock.now_s, progress.at_s)
                yield row, progress
            self._due[row] = following = engine.next_event_time()
            if math.isinf(following):
                self._rest(row, at)
        self.clock.now_s = max(self.clock.now_s, until_s) if math.isfinite(until_s) else self.clock.now_s

    def _rest(self, row: int, now_s: float) -> None:
        since = self._busy_since[row]
        if since is not None:
            self.busy_s[row] += now_s - since
            self._busy_since[row] = None
