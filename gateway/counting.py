"""What engines count themselves, for the cost model: tokens per decode step, and how fast each tier gives KV back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from backends.contract import Terms
from backends.contracts import Clock, ReplicaState, Tier
from backends.counters import Copies, Counters
from backends.fleet import Member
from backends.profiles import FsTier, HostTier, Profile
from policies.cost_model.costs import Costs
from policies.cost_model.facts import PoolFacts

ASK_EVERY_S: Final = 10.0  # for counters that are not in what every probe reads
# Seconds that copying one token can take. What lies outside was miscounted, or the profile's bytes are not the pool's.
_FASTEST, _SLOWEST = 1e-9, 0.1


class CounterFeed:
    """Follows the counters of every replica from look to look. Wants nothing where no costs are counted."""

    __slots__ = ("_asked_s", "_clock", "_costs", "_facts", "_seen", "_terms")

    def __init__(self, costs: Costs, terms: Callable[[str], Terms], clock: Clock) -> None:
        """`terms` are those of a pool's contract."""
        self._costs = costs
        self._terms = terms
        self._clock = clock
        self._facts: Mapping[str, PoolFacts] = {}
        self._seen: dict[str, Counters] = {}
        self._asked_s: dict[str, float] = {}

    def follow(self, facts: Mapping[str, PoolFacts]) -> None:
        """Follow a configuration: the pools whose hardware it tells, without which bytes tell no tokens."""
        self._facts = facts

    def wants(self, member: Member, *, asking: bool) -> bool:
        """See `backends.health.CounterReader`. Asks seldom, and only where something is counted."""
        if self._costs.model is None:
            return False
        if not asking:
            return True
        if member.state is not ReplicaState.READY:
            return False  # a slow answer must not keep it out any longer
        terms, now_s = self._terms(member.spec.name), self._clock.monotonic()
        if not (terms.spec_tokens or terms.spec_method or terms.kv_layout or self._drafts(member.spec.name)):
            return False
        if now_s - self._asked_s.get(member.id, -ASK_EVERY_S) < ASK_EVERY_S:
            return False
        self._asked_s[member.id] = now_s
        return True

    def took(self, member: Member, counters: Counters) -> None:
        """Tell the cost model what was counted since the last look. The first one, and one at an engine that has
        started again, only begin."""
        before, model = self._seen.get(member.id), self._costs.model
        self._seen[member.id] = counters
        counted = counters.since(before) if before is not None else None
        if counted is None or model is None:
            return
        if per_step := counted.tokens_per_step():
            model.accepted(member.id, per_step)
        if facts := self._facts.get(member.spec.name):
            for tier, tokens, ms in restores(facts.profile, counted):
                model.restored(member.id, tier, tokens, ms)

    def forget(self, replica_id: str) -> None:
        """The replica's process has ended, or the replica has left the fleet."""
        self._seen.pop(replica_id, None)
        self._asked_s.pop(replica_id, None)

    def _drafts(self, pool: str) -> bool:
        facts = self._facts.get(pool)
        return facts is not None and facts.profile.tokens_per_step > 1.0


def restores(profile: Profile, counted: Counters) -> Iterator[tuple[Tier, int, float]]:
    """The mean restore from each tier since the last look: (tier, tokens, ms), where something is known of it.

    Engines time the copying alone. What else a restore takes stays as the profile has it, so that an engine that
    copies as the profile says is found to be as the profile says.
    """
    host = profile.host
    if host is None:
        return
    usual_s = host.bytes_per_token / host.bytes_per_s
    size, each_s = _host(counted.host, host)
    if each_s:
        took_s = size * each_s - host.overlap_s
        # Below the floor the rate does not show.
        if max(took_s, size * usual_s - host.overlap_s) > host.floor_s:
            yield "host", round(size), 1e3 * max(host.floor_s, took_s)
    fs = profile.fs
    if fs is None:
        return
    read, read_s = _fs(counted.fs, fs, host, size)
    if read_s:
        # What comes from files crosses the host link too.
        yield "fs", round(read), 1e3 * (fs.latency_s + host.floor_s + read * (read_s + (each_s or usual_s)))


def _host(copies: Copies, host: HostTier) -> tuple[float, float]:
    """Tokens of a mean copy, and seconds per token; zeros when they are not known."""
    tokens = copies.tokens or _over(copies.bytes, host.bytes_per_token)
    return _plausible(_over(tokens, copies.count), _over(copies.seconds, tokens))


def _fs(copies: Copies, fs: FsTier, host: HostTier, usual: float) -> tuple[float, float]:
    """The same of reads; `usual` is the size of the copies to the GPU that follow, for reads that nobody counts."""
    if copies.rates:  # of one rank
        each_s = _over(host.bytes_per_token * copies.count, copies.rates)
        return _plausible(_over(copies.tokens, copies.count), each_s)
    tokens = _over(copies.bytes, fs.bytes_per_token)
    return _plausible(min(usual or tokens, tokens), _over(copies.seconds, tokens))


def _plausible(size: float, each_s: float) -> tuple[float, float]:
    return (size, each_s) if size >= 1.0 and _FASTEST < each_s < _SLOWEST else (0.0, 0.0)


def _over(value: float, by: float) -> float:
    return value / by if by > 0.0 else 0.0
