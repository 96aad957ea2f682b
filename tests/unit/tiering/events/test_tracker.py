"""Whatever is lost, doubled, reordered or restarted: the index never has a block its replica does not have."""

from __future__ import annotations

import random

import msgspec
import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.events.decode import Decoder
from tiering.events.tracker import Action, Apply, Forget, Phase, Replay, Tracker
from tiering.index.memory import Sizes
from tiering.index.prefix import PrefixIndex

BLOCKS = [random.Random(5).getrandbits(64) for _ in range(400)]
MEDIA = ("GPU", "CPU")


def payload(at: float, *events: dict) -> bytes:
    return msgspec.msgpack.encode([at, list(events), 0])


def stored(*blocks: int, medium: str = "GPU") -> dict:
    return {"type": "BlockStored", "block_hashes": list(blocks), "medium": medium}


def removed(*blocks: int, medium: str = "GPU") -> dict:
    return {"type": "BlockRemoved", "block_hashes": list(blocks), "medium": medium}


def tracker(*, replay: bool = True, cap: int = 50) -> Tracker:
    return Tracker(Decoder("vllm"), can_replay=replay, waiting_cap=cap)


class Engine:
    """A publisher with a replay buffer, and the truth about its blocks."""

    def __init__(self, buffer: int) -> None:
        self.clock = 0.0
        self.buffer_size = buffer
        self.start()

    def start(self) -> None:
        self.seq = 0
        self.buffer: list[tuple[int, bytes]] = []
        self.held: dict[str, set[int]] = {medium: set() for medium in MEDIA}

    def publish(self, what: int, medium: str, first: int, count: int) -> tuple[int, bytes]:
        blocks = BLOCKS[first : first + count]
        self.clock += 1
        if what == 0:
            self.held["GPU"].clear()
            body = payload(self.clock, {"type": "AllBlocksCleared"})
        elif what == 1:
            self.held[medium] -= set(blocks)
            body = payload(self.clock, removed(*blocks, medium=medium))
        else:
            self.held[medium] |= set(blocks)
            body = payload(self.clock, stored(*blocks, medium=medium))
        message = (self.seq, body)
        self.buffer = [*self.buffer, message][-self.buffer_size :] if self.buffer_size else []
        self.seq += 1
        return message

    @property
    def all(self) -> set[int]:
        return set().union(*self.held.values())


class Follower:
    """Carries out what the tracker says."""

    def __init__(self, engine: Engine, *, replay: bool) -> None:
        self.engine = engine
        self.tracker = tracker(replay=replay)
        self.index = PrefixIndex.create(Sizes(blocks=1000, sets=64, holders=64))
        self.now = 0.0
        self.answers = True

    def do(self, actions: list[Action]) -> None:
        for action in actions:
            match action:
                case Apply(events):
                    self.index.apply("r", events)
                case Forget():
                    self.index.forget("r")
                case Replay(start, ticket):
                    self.replay(start, ticket)

    def replay(self, start: int, ticket: int) -> None:
        if not self.answers:
            return
        for seq, body in [message for message in self.engine.buffer if message[0] >= start]:
            self.do(self.tracker.replayed(ticket, seq, body, self.now))
        self.do(self.tracker.replay_ended(ticket, self.now))

    def hear(self, message: tuple[int, bytes]) -> None:
        self.do(self.tracker.live(*message, self.now))

    def settle(self) -> None:
        for _ in range(4):
            self.now += 10
            self.do(self.tracker.tick(self.now))

    @property
    def known(self) -> set[int]:
        held = self.index.holds("r", np.array(BLOCKS, np.uint64))
        return {block for block, has in zip(BLOCKS, held.tolist(), strict=True) if has}


STEP = st.tuples(
    st.sampled_from(["hear"] * 8 + ["drop", "drop", "twice", "late", "restart", "cut", "mute"]),
    st.sampled_from([0, 1, 1, 2, 2, 2]),
    st.sampled_from(MEDIA),
    st.integers(0, 380),
    st.integers(1, 20),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(STEP, max_size=60), st.sampled_from([0, 3, 1000]), st.booleans(), st.integers(0, 5))
def test_the_index_is_within_the_truth_whatever_happens(steps: list, buffer: int, replay: bool, before: int) -> None:
    engine = Engine(buffer)
    for number in range(before):
        engine.publish(2, "GPU", 20 * number, 20)
    follower = Follower(engine, replay=replay)
    lossless = replay and buffer == 1000
    follower.do(follower.tracker.connected(0.0))
    late: list[tuple[int, bytes]] = []
    heard_any = False
    for fate, what, medium, first, count in steps:
        if fate == "restart":
            engine.start()
            late.clear()
            follower.do(follower.tracker.connected(follower.now))
        if fate == "mute":
            follower.answers = not follower.answers
            lossless = lossless and follower.answers
        message = engine.publish(what, medium, first, count)
        if fate == "drop":
            lossless = lossless and follower.answers
            continue
        if fate == "late":
            late.append(message)
            continue
        if fate == "cut":
            follower.do(follower.tracker.connected(follower.now))
        follower.hear(message)
        heard_any = True
        if fate == "twice":
            follower.hear(message)
        for delayed in late:
            follower.hear(delayed)
        late.clear()
        # A gap that nothing has closed yet is over after the tracker's patience.
        if follower.tracker.phase is Phase.GAP:
            lossless = lossless and follower.answers
            follower.settle()
        assert follower.known <= engine.all
    follower.hear(engine.publish(2, "GPU", 0, 1))
    follower.settle()
    assert follower.known <= engine.all
    assert follower.tracker.phase is Phase.LIVE
    if lossless and heard_any:
        assert follower.known == engine.all


def test_batches_in_order_are_applied_at_once() -> None:
    one = tracker()
    assert isinstance(one.live(0, payload(1.0, stored(1)), 0.0)[0], Apply)
    assert isinstance(one.live(1, payload(2.0, removed(1)), 0.0)[0], Apply)
    assert one.counts.gaps == 0


def test_a_gap_asks_for_one_known_batch_and_all_that_is_missing() -> None:
    one = tracker()
    one.live(0, payload(1.0, stored(1)), 0.0)
    assert one.live(4, payload(5.0, stored(5)), 0.0) == [Replay(0)]
    assert (one.counts.gaps, one.counts.replays) == (1, 1)
    assert one.replayed(one._ticket, 0, payload(1.0, stored(1)), 0.0) == []
    applied = [one.replayed(one._ticket, seq, payload(seq + 1.0, stored(seq + 1)), 0.0) for seq in (1, 2, 3)]
    assert all(isinstance(actions[0], Apply) for actions in applied)
    assert one.replay_ended(one._ticket, 0.0) == []
    assert one.phase is Phase.LIVE
    assert one.lost_at is None


def test_what_came_before_our_subscription_took_effect_is_asked_for_again() -> None:
    one = tracker()
    assert one.connected(0.0) == [Replay(0)]
    assert one.replay_ended(one._ticket, 0.0) == []
    assert one.tick(0.5) == []
    assert one.tick(1.5) == [Replay(0)]
    assert isinstance(one.replayed(one._ticket, 0, payload(1.0, stored(1)), 1.5)[0], Apply)
    assert one.replay_ended(one._ticket, 1.5) == []
    assert one.tick(9.0) == []


def test_a_gap_without_replay_forgets_and_goes_on() -> None:
    one = tracker(replay=False)
    one.live(0, payload(1.0, stored(1)), 0.0)
    forget, apply = one.live(2, payload(3.0, stored(3)), 7.0)
    assert forget == Forget("gap")
    assert isinstance(apply, Apply)
    assert one.lost_at == 7.0
    assert isinstance(one.live(3, payload(4.0), 8.0)[0], Apply)


def test_a_replay_that_never_comes_is_given_up() -> None:
    one = tracker()
    one.live(0, payload(1.0, stored(1)), 0.0)
    one.live(2, payload(3.0, stored(3)), 0.0)
    assert one.tick(1.0) == []
    assert one.tick(2.5)[0] == Forget("replay incomplete")


def test_a_new_process_behind_our_number_is_told_by_its_clock() -> None:
    one = tracker()
    for seq in range(5):
        one.live(seq, payload(seq + 1.0, stored(seq)), 0.0)
    one.connected(0.0)
    assert one.replayed(one._ticket, 4, payload(99.0, stored(77)), 0.0) == [Forget("restart"), Replay(0)]


def test_after_a_reconnect_nothing_is_applied_before_the_process_is_known() -> None:
    one = tracker()
    one.live(0, payload(1.0, stored(1)), 0.0)
    assert one.connected(0.0) == [Replay(0)]
    assert one.live(1, payload(99.0, stored(2)), 0.0) == []
    assert one.replayed(one._ticket, 0, payload(98.0, stored(7)), 0.0) == [Forget("restart"), Replay(0)]


def test_answers_to_an_earlier_request_are_not_taken_for_the_later_one() -> None:
    one = tracker()
    one.live(0, payload(1.0, stored(1)), 0.0)
    one.connected(0.0)
    stale = one._ticket
    one.connected(0.0)
    assert one.replayed(stale, 3, payload(50.0, stored(3)), 0.0) == []
    assert one.replay_ended(stale, 0.0) == []
    assert one.phase is Phase.GAP
    assert one.replayed(one._ticket, 0, payload(1.0, stored(1)), 0.0) == []
    assert isinstance(one.replayed(one._ticket, 1, payload(2.0, stored(4)), 0.0)[0], Apply)


def test_what_waits_behind_a_gap_has_a_cap() -> None:
    one = tracker(cap=10)
    one.live(0, payload(0.5), 0.0)
    actions = [one.live(seq, payload(float(seq), stored(seq)), 0.0) for seq in range(2, 14)]
    assert any(Forget("too much behind a gap") in item for item in actions)
    assert len(one._waiting) <= 10


def test_bytes_that_are_no_batch_count_and_forget() -> None:
    one = tracker()
    one.live(0, payload(1.0, stored(1)), 0.0)
    assert one.live(1, b"\xc1nonsense", 0.0) == [Forget("bad batch")]
    assert one.counts.bad == 1
    assert isinstance(one.live(2, payload(3.0, stored(3)), 0.0)[0], Apply)
