from __future__ import annotations

import random

import numpy as np
import pytest

from backends.contracts import Replica, ReplicaState
from tiering.approximate import ApproximateIndex
from tiering.chain import Chain

BLOCK = 100


class Clock:
    now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def chain(seed: int, blocks: int = 10) -> Chain:
    source = random.Random(seed)
    return Chain(np.array([source.getrandbits(64) for _ in range(blocks)], np.uint64), BLOCK, blocks * BLOCK)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def approximate(clock: Clock) -> ApproximateIndex:
    return ApproximateIndex(clock)


def reach(approximate: ApproximateIndex, prompt: Chain, replica: str = "p/0") -> int:
    rows = approximate.locate(prompt, [Replica(replica, "p", "", 1, ReplicaState.READY)], 3)
    assert not rows[:, [0, 2]].any()
    assert len(set(rows[:, 1].tolist())) == 1
    return int(rows[0, 1]) // BLOCK


def test_what_was_sent_is_there(approximate: ApproximateIndex) -> None:
    approximate.sent("p/0", chain(1, 10))
    assert reach(approximate, chain(1, 20)) == 10
    assert reach(approximate, chain(2)) == 0
    approximate.forget("p/0")
    assert reach(approximate, chain(1)) == 0


def test_capacity_is_that_of_the_replica(approximate: ApproximateIndex) -> None:
    approximate.set_capacity("p/0", 4000)
    for seed in range(5):
        approximate.sent("p/0", chain(seed))
    assert sum(reach(approximate, chain(seed)) for seed in range(5)) <= 36
    assert reach(approximate, chain(4)) == 10
    # The oldest prompt lost its end first.
    assert reach(approximate, chain(0)) < 10
    assert all(reach(approximate, chain(seed)) == 10 for seed in range(2, 5))
    approximate.set_capacity("p/0", 1000)
    assert reach(approximate, chain(4)) == 9
    assert approximate._entries == len(approximate._owners) == 9


def test_a_prompt_sent_again_counts_once_and_stays(approximate: ApproximateIndex) -> None:
    approximate.set_capacity("p/0", 4000)
    for seed in range(1, 40):
        approximate.sent("p/0", chain(0))
        approximate.sent("p/0", chain(seed))
    assert reach(approximate, chain(0)) == 10


def test_life_is_learned_from_responses(approximate: ApproximateIndex, clock: Clock) -> None:
    approximate.sent("p/0", chain(1))
    approximate.correct("p/0", chain(1), predicted=0, reported=0, age_s=None)
    clock.now += 60
    assert approximate.age("p/0", chain(1)) == 60
    approximate.correct("p/0", chain(1), predicted=1000, reported=0, age_s=60)
    approximate.sent("p/0", chain(2))
    clock.now += 50
    approximate.expire()
    assert reach(approximate, chain(2)) == 10
    clock.now += 20
    approximate.expire()
    assert reach(approximate, chain(2)) == 0


def test_life_grows_again_when_old_prompts_hit(approximate: ApproximateIndex, clock: Clock) -> None:
    approximate.sent("p/0", chain(1))
    approximate.correct("p/0", chain(1), predicted=1000, reported=0, age_s=60)
    for _ in range(10):
        approximate.correct("p/0", chain(1), predicted=1000, reported=1000, age_s=10_000)
    clock.now += 100
    approximate.expire()
    assert reach(approximate, chain(1)) == 10


def test_what_was_still_being_computed_is_not_held_for_evicted(approximate: ApproximateIndex, clock: Clock) -> None:
    approximate.sent("p/0", chain(1, 4))
    clock.now += 1
    assert approximate.age("p/0", chain(1)) is None
    approximate.sent("p/0", chain(1))  # before the first has been answered
    approximate.correct("p/0", chain(1, 4), predicted=0, reported=0, age_s=None)
    clock.now += 1
    assert approximate.age("p/0", chain(1)) is None, "its end is not there yet"
    assert approximate.age("p/0", chain(1, 4)) == 1.0
    approximate.correct("p/0", chain(1), predicted=400, reported=0, age_s=None)
    assert approximate.confidence("p/0") == 1.0
    clock.now += 3600
    approximate.expire()
    assert reach(approximate, chain(1)) == 10
    assert approximate.age("p/0", chain(1)) == 3601.0


def test_confidence_is_what_responses_confirm(approximate: ApproximateIndex) -> None:
    assert approximate.confidence("p/0") == 1.0
    approximate.sent("p/0", chain(1))
    for _ in range(30):
        approximate.correct("p/0", chain(1), predicted=1000, reported=500, age_s=1)
    assert approximate.confidence("p/0") == pytest.approx(0.5, abs=0.02)
    approximate.correct("p/0", chain(1), predicted=0, reported=500, age_s=None)
    assert approximate.confidence("p/0") == pytest.approx(0.5, abs=0.02)


def test_blocks_per_replica_have_a_cap(approximate: ApproximateIndex) -> None:
    approximate.set_capacity("p/0", 10**12)
    for seed in range(12):
        approximate.sent("p/0", chain(seed, 1000))
    assert len(approximate._replicas["p/0"].blocks) == 8192


def test_replicas_share_blocks_and_each_loses_its_own(approximate: ApproximateIndex) -> None:
    for number in range(70):
        approximate.sent(f"p/{number}", chain(1, 10 if number % 2 else 4))
    assert [reach(approximate, chain(1), f"p/{number}") for number in range(70)] == [4, 10] * 35
    approximate.forget("p/3")
    assert reach(approximate, chain(1), "p/3") == 0
    assert reach(approximate, chain(1), "p/5") == 10
    approximate.sent("new", chain(2))  # takes the bit that became free
    assert reach(approximate, chain(1), "new") == 0
    for number in range(70):
        approximate.forget(f"p/{number}")
    approximate.forget("new")
    assert not approximate._owners
    assert approximate._entries == 0
