"""The measurements that were made on a real GPU, made on the pure engine instead."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from backends.profiles import Profile
from backends.simulator.engine import Engine, Scheduling
from backends.simulator.requests import Progress, SimRequest

QUIET_S = 1000.0  # long after every write is through


def chain(tokens: int, block_tokens: int, tag: str = "a") -> Sequence[tuple[str, int]]:
    return [(tag, i) for i in range(tokens // block_tokens)]


def drain(engine: Engine) -> list[Progress]:
    out: list[Progress] = []
    while (at := engine.next_event_time()) < math.inf:
        out += engine.advance(at)
    return out


def advance_to(engine: Engine, now: float) -> list[Progress]:
    out: list[Progress] = []
    while engine.next_event_time() <= now:
        out += engine.advance(engine.next_event_time())
    return out + engine.advance(now)


@dataclass(frozen=True)
class Rig:
    """One kind of engine on one profile."""

    profile: Profile
    scheduling: Scheduling

    def request(self, name: str, prompt: int, output: int, *, cached: bool = True) -> SimRequest:
        return SimRequest(name, prompt, output, chain(prompt, self.profile.block_tokens) if cached else ())

    def warmed(self, tokens: int, tier: str, *, per_token: bool = False) -> Engine:
        """An idle engine that has `tokens` of the prompt in `tier` and nowhere above it."""
        engine = Engine(self.profile, self.scheduling, tokens=per_token)
        if tier != "cold":
            engine.submit(self.request("warm", tokens, 4), 0.0)
            drain(engine)
            engine.advance(QUIET_S)
        if tier in ("host", "fs"):
            engine.tiers.pool.clear()
        if tier == "fs":
            assert engine.tiers.host is not None
            engine.tiers.host.clear()
        return engine

    def ttft(self, prompt: int, tier: str, cached: int | None = None) -> float:
        """Seconds to the first token of one prompt alone."""
        engine = self.warmed(cached or prompt, tier)
        engine.submit(self.request("probe", prompt, 4), QUIET_S)
        return next(p.at_s for p in drain(engine) if p.first) - QUIET_S

    def tpot_ms(self, streams: int, context: int, output: int = 64) -> float:
        """Median milliseconds between tokens of a steady batch."""
        engine = Engine(self.profile, self.scheduling, tokens=True)
        for i in range(streams):
            engine.submit(self.request(str(i), context, output, cached=False), 0.0)
        return statistics.median(gaps(drain(engine)))

    def interference(self, prompt: int, tier: str, phases: int = 4) -> Interference:
        """Eight running streams meet one long prompt; means over arrivals all over one decode step."""
        seen = [self._meet(prompt, tier, QUIET_S + 2 + i * 0.0055 / phases) for i in range(phases)]
        return Interference(*(statistics.fmean(column) for column in zip(*seen, strict=True)))

    def _meet(self, prompt: int, tier: str, at: float) -> tuple[float, float, float]:
        engine = self.warmed(prompt, tier, per_token=True)
        for i in range(8):
            engine.submit(self.request(f"stream{i}", 128, 5000, cached=False), QUIET_S)
        progress = advance_to(engine, at)
        engine.submit(self.request("probe", prompt, 4), at)
        while not any(p.first and p.request.id == "probe" for p in progress):
            progress += engine.advance(engine.next_event_time())
        first = next(p.at_s for p in progress if p.first and p.request.id == "probe")
        progress += advance_to(engine, first + 0.05)
        times = [p.at_s for p in progress if p.request.id == "stream0"]
        inside = [(b - a) * 1e3 for a, b in itertools.pairwise(times) if b > at and a < first]
        return first - at, statistics.fmean(inside), max(inside)


@dataclass(frozen=True)
class Interference:
    """What the newcomer waits, and what the running streams see meanwhile."""

    ttft: float  # s
    itl_in_mean: float  # ms
    itl_in_max: float  # ms


def gaps(progress: list[Progress]) -> list[float]:
    """Milliseconds per token between consecutive reports of each request."""
    last: dict[str, float] = {}
    out = []
    for p in progress:
        if p.request.id in last:
            out.append((p.at_s - last[p.request.id]) / p.tokens * 1e3)
        last[p.request.id] = p.at_s
    return out
