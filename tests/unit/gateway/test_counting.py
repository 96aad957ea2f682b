"""What the cost model is told of engines' counters."""

from dataclasses import replace

import pytest

from backends.contract import Terms
from backends.contracts import ReplicaState
from backends.counters import Copies, Counters
from backends.engines import builtin
from backends.fleet import Fleet, Member, PoolSpec
from backends.profiles import Profile, load_profile
from gateway.counting import ASK_EVERY_S, CounterFeed, restores
from policies.cost_model.columns import Col
from policies.cost_model.costs import Costs
from policies.cost_model.facts import PoolFacts
from tests.support.clock import ManualClock

VLLM, SGLANG = load_profile("h200", "vllm"), load_profile("h200", "sglang")
GLM = load_profile("h100-fp8", "vllm")  # files hold the copies of eight ranks
TOKENS = 20_000


def loads(profile: Profile, factor: float = 1.0, *, ranks: int = 1, count: float = 2.0) -> Copies:
    """Copies of TOKENS each over a link that takes `factor` times as long, as vLLM counts them."""
    assert profile.host is not None
    moved = ranks * count * TOKENS * profile.host.bytes_per_token
    return Copies(count=ranks * count, bytes=moved, seconds=factor * moved / profile.host.bytes_per_s)


def reads(profile: Profile, factor: float = 1.0, count: float = 2.0) -> Copies:
    assert profile.fs is not None
    moved = count * TOKENS * profile.fs.bytes_per_token
    return Copies(bytes=moved, seconds=factor * moved / profile.fs.bytes_per_s)


def told(profile: Profile, counted: Counters) -> dict[str, tuple[int, float]]:
    return {tier: (tokens, ms) for tier, tokens, ms in restores(profile, counted)}


class World:
    """One pool of one replica, its clock and the feed before it."""

    def __init__(self, engine: str = "vllm", profile: Profile = VLLM, *, looks_up: bool = True) -> None:
        self.clock, self.costs, self.terms = ManualClock(), Costs(), Terms()
        self.fleet = Fleet(builtin(), self.clock)
        (self.member,), _ = self.fleet.apply([PoolSpec("a", engine, "glm", ("http://x",))])
        self.fleet.set_state(self.member, ReplicaState.READY)
        facts = {"a": PoolFacts(profile)}
        self.costs.follow(facts, wanted=looks_up)
        if self.costs.model is not None:
            self.costs.model.align(self.fleet.snapshot(), 0.0)
        self.feed = CounterFeed(self.costs, lambda _: self.terms, self.clock)
        self.feed.follow(facts)

    def figure(self, col: int) -> float:
        assert self.costs.model is not None
        return float(self.costs.model.columns[col, 0])

    def factor(self, term: str) -> float:
        assert self.costs.model is not None
        return self.costs.model.multipliers("a/0")[term]


@pytest.mark.parametrize("profile", [VLLM, SGLANG, GLM, load_profile("gb200-mtp", "sglang")])
async def test_an_engine_that_copies_as_its_profile_says_is_as_its_profile_says(profile):
    world = World(profile=profile)
    for looks in range(4):
        world.feed.took(world.member, Counters(host=loads(profile, count=looks), fs=reads(profile, count=looks)))
    assert world.factor("host") == pytest.approx(1.0, abs=1e-3)
    assert world.factor("fs") == pytest.approx(1.0, abs=1e-3)


def test_a_restore_is_the_mean_of_what_was_copied():
    restored = told(VLLM, Counters(host=loads(VLLM, 2.0), fs=reads(VLLM, 3.0)))
    link_ms, disk_ms = 1e3 * TOKENS * 147456 / 4.486e10, 1e3 * TOKENS * 147456 / 1.83e9
    assert restored["host"] == (TOKENS, pytest.approx(2 * link_ms))
    assert restored["fs"] == (TOKENS, pytest.approx(6.0 + 1.0 + 3 * disk_ms + 2 * link_ms))


def test_ranks_that_count_together_copy_at_once():
    assert (
        told(GLM, Counters(host=loads(GLM, 2.0, ranks=8))) == told(GLM, Counters(host=loads(GLM, 2.0, ranks=1))) != {}
    )


def test_sglang_counts_tokens_and_its_storage_tells_rates():
    host, fs = SGLANG.host, SGLANG.fs
    assert host is not None
    assert fs is not None
    copies = Copies(count=3.0, tokens=3.0 * TOKENS, seconds=0.6)
    reads = Copies(count=4.0, tokens=4.0 * 8192, rates=4.0 * 1e9)
    restored = told(SGLANG, Counters(host=copies, fs=reads))
    assert restored["host"] == (TOKENS, pytest.approx(200.0 - 13.0))
    assert restored["fs"] == (8192, pytest.approx(12.0 + 23.5 + 8192 * (147456 / 1e9 + 1e-5) * 1e3))


def test_reads_of_files_that_have_not_crossed_the_link_yet():
    (tokens, ms) = told(VLLM, Counters(fs=reads(VLLM, 2.0)))["fs"]
    assert tokens == 2 * TOKENS
    assert ms == pytest.approx(7.0 + 1e3 * tokens * (2 * 147456 / 1.83e9 + 147456 / 4.486e10))


def test_copies_too_short_to_show_their_rate_say_nothing():
    small = Copies(count=5.0, tokens=5.0 * 500, seconds=5 * 500 * 2.7e-6)
    assert told(SGLANG, Counters(host=small)) == {}
    slow = replace(small, seconds=5 * 0.1)  # but one that is slow shows
    assert told(SGLANG, Counters(host=slow)) == {"host": (500, pytest.approx(87.0))}


@pytest.mark.parametrize(
    "counted",
    [
        Counters(),
        Counters(host=Copies(count=1.0, bytes=1e9)),  # no time
        Counters(host=Copies(bytes=1e9, seconds=1.0)),  # of how many copies
        Counters(host=Copies(count=1.0, seconds=1.0)),
        Counters(host=Copies(count=1.0, bytes=1e9, seconds=1e9)),
        Counters(host=Copies(count=1.0, bytes=1e15, seconds=1e-6)),
        Counters(fs=Copies(tokens=1e6)),  # SGLang's own file storage
        Counters(fs=Copies(bytes=1e9)),
        Counters(fs=Copies(count=1.0, rates=1e9)),
    ],
)
def test_half_told_or_absurd_copies_say_nothing(counted):
    assert told(VLLM, counted) == {}


def test_pools_without_tiers_restore_nothing():
    assert told(VLLM.without_tiers(), Counters(host=loads(VLLM), fs=reads(VLLM))) == {}
    assert "fs" not in told(replace(VLLM, fs=None), Counters(host=loads(VLLM), fs=reads(VLLM)))
    free = replace(VLLM, host=replace(VLLM.host, bytes_per_token=0.0))
    assert told(free, Counters(host=loads(VLLM))) == {}


async def test_the_first_look_and_one_after_a_restart_only_begin():
    world = World()
    world.feed.took(world.member, Counters(drafts=100.0, accepted=900.0, host=loads(VLLM, 9.0)))
    assert world.figure(Col.PER_STEP) == 1.0
    world.feed.took(world.member, Counters(drafts=50.0, accepted=450.0))  # less than before
    assert world.figure(Col.PER_STEP) == 1.0
    world.feed.took(world.member, Counters(drafts=100.0, accepted=500.0))
    assert world.figure(Col.PER_STEP) == pytest.approx(1.0 + 0.2 * 1.0)
    world.feed.took(world.member, Counters(drafts=100.0, accepted=500.0))  # nothing new
    assert world.figure(Col.PER_STEP) == pytest.approx(1.2)
    world.feed.forget("a/0")
    world.feed.took(world.member, Counters(drafts=1000.0, accepted=9000.0))
    assert world.figure(Col.PER_STEP) == pytest.approx(1.2)


async def test_bytes_tell_no_tokens_where_the_hardware_is_unknown():
    world = World()
    world.feed.follow({})
    world.feed.took(world.member, Counters())
    world.feed.took(world.member, Counters(drafts=100.0, accepted=100.0, host=loads(VLLM, 5.0)))
    assert world.factor("host") == 1.0
    assert world.figure(Col.PER_STEP) == pytest.approx(1.2)


async def test_replicas_that_left_or_were_never_decided_on_teach_nothing():
    world = World()
    stranger = Member("b/0", "http://y", world.member.spec, world.member.kind)
    world.feed.took(stranger, Counters())
    world.feed.took(stranger, Counters(drafts=100.0, accepted=100.0, host=loads(VLLM, 5.0)))
    assert world.figure(Col.PER_STEP) == 1.0


async def test_nothing_is_wanted_without_a_cost_model():
    world = World(looks_up=False)
    assert not world.feed.wants(world.member, asking=False)
    assert not world.feed.wants(world.member, asking=True)
    world.feed.took(world.member, Counters())
    world.feed.took(world.member, Counters(drafts=100.0, accepted=100.0))


async def test_what_the_probe_has_read_anyway_is_always_wanted():
    world = World()
    assert all(world.feed.wants(world.member, asking=False) for _ in range(3))


@pytest.mark.parametrize(
    ("terms", "profile", "wanted"),
    [
        (Terms(), "h200", False),
        (Terms(spec_tokens=0, spec_method=""), "h200", False),
        (Terms(spec_tokens=3), "h200", True),
        (Terms(spec_method="nextn"), "h200", True),
        (Terms(kv_layout="page_first"), "h200", True),
        (Terms(), "gb200-mtp", True),
    ],
)
async def test_engines_are_asked_where_something_is_counted(terms, profile, wanted):
    world = World("sglang", load_profile(profile, "sglang"))
    world.terms = terms
    assert world.feed.wants(world.member, asking=True) is wanted


async def test_engines_are_asked_seldom_and_never_while_they_are_out():
    world = World("sglang")
    world.terms = Terms(spec_tokens=3)
    assert world.feed.wants(world.member, asking=True)
    world.clock.advance(ASK_EVERY_S - 1.0)
    assert not world.feed.wants(world.member, asking=True)
    world.clock.advance(1.0)
    world.fleet.set_state(world.member, ReplicaState.HELD)
    assert not world.feed.wants(world.member, asking=True)
    world.fleet.set_state(world.member, ReplicaState.READY)
    assert world.feed.wants(world.member, asking=True)
    assert not world.feed.wants(world.member, asking=True)
