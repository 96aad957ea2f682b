"""The index against a model: never a block a replica does not have, and all of them when nothing was lost."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.contracts import TIERS, Replica, ReplicaState
from tiering.chain import Chain, Layout, chain_of_hashes
from tiering.events.decode import Cleared, KvEvent, Removed, Stored
from tiering.index.memory import CHUNK, HEAD, TAIL, Sizes
from tiering.index.prefix import PrefixIndex
from tiering.index.reader import IndexReader

BLOCK = 16
PLAIN = Layout()
SMALL = Sizes(blocks=500, sets=256, holders=64)


def prompt(seed: int, blocks: int) -> list[int]:
    source = random.Random(seed)
    return [source.getrandbits(64) for _ in range(blocks)]


def chain(hashes: list[int], layout: Layout = PLAIN) -> Chain:
    return chain_of_hashes(np.array(hashes, np.uint64), BLOCK, len(hashes) * BLOCK + 1, layout)


def replicas(*names: str, ranks: int = 1) -> list[Replica]:
    return [Replica(name, "p", "", row, ReplicaState.READY, dp_ranks=ranks) for row, name in enumerate(names)]


def reach(index: IndexReader, hashes: list[int], name: str, layout: Layout = PLAIN) -> list[int]:
    """Blocks reached reading gpu, +host, +fs, +remote."""
    found = index.locate(chain(hashes, layout), index.rows(replicas(name)))
    return [int(tokens) // BLOCK for tokens in found.reach[:, 0]]


def usable(tiers: dict[str, set[int]], hashes: list[int]) -> list[int]:
    """The same by definition: the GPU up to its first gap, then only what lies below."""
    result = []
    for depth in range(len(TIERS)):
        below = set().union(*(tiers[tier] for tier in TIERS[1 : depth + 1]))
        on_gpu, count = True, 0
        for block in hashes:
            on_gpu = on_gpu and block in tiers["gpu"]
            if not on_gpu and block not in below:
                break
            count += 1
        result.append(count)
    return result


@pytest.fixture
def index() -> PrefixIndex:
    return PrefixIndex.create(SMALL)


def test_a_match_ends_at_the_first_gap(index: PrefixIndex) -> None:
    blocks = prompt(1, 10)
    index.apply("a", [Stored(blocks[:4]), Stored(blocks[6:])])
    assert reach(index, blocks, "a") == [4, 4, 4, 4]


def test_lower_tiers_continue_where_the_gpu_ends(index: PrefixIndex) -> None:
    blocks = prompt(1, 10)
    index.apply("a", [Stored(blocks[:3]), Stored(blocks[5:]), Stored(blocks[:6], "host"), Stored(blocks[6:8], "fs")])
    # Blocks 8 and 9 are on the GPU, behind a gap: an engine does not look there.
    assert reach(index, blocks, "a") == [3, 6, 8, 8]


def test_clearing_empties_the_gpu_alone(index: PrefixIndex) -> None:
    blocks = prompt(1, 6)
    index.apply("a", [Stored(blocks), Stored(blocks[:4], "host"), Cleared(), Stored(blocks[:1])])
    assert reach(index, blocks, "a") == [1, 4, 4, 4]


def test_order_within_one_batch_counts(index: PrefixIndex) -> None:
    blocks = prompt(1, 4)
    index.apply("a", [Stored(blocks), Removed(blocks[2:]), Stored(blocks[2:3]), Removed(blocks[:1], "host")])
    assert reach(index, blocks, "a") == [3, 3, 3, 3]


def test_forgetting_one_replica_leaves_the_others(index: PrefixIndex) -> None:
    blocks = prompt(1, 4)
    for name in ("a", "b"):
        index.apply(name, [Stored(blocks)])
    index.forget("a")
    assert reach(index, blocks, "a")[0] == 0
    assert reach(index, blocks, "b")[0] == 4
    assert index.live == 4


def test_a_removed_replica_gives_its_place_back() -> None:
    index = PrefixIndex.create(SMALL)
    blocks = prompt(1, 4)
    for number in range(200):
        assert index.apply(f"pool/{number}", [Stored(blocks)]) == 4
        index.remove(f"pool/{number}")
    assert index.live == 0
    assert reach(index, blocks, "pool/199")[0] == 0


def test_more_holders_than_places_stay_unknown() -> None:
    index = PrefixIndex.create(SMALL)
    assert [index.apply(f"pool/{number}", [Stored([7])]) for number in range(65)] == [1] * 64 + [0]


def test_each_rank_counts_and_the_best_is_named(index: PrefixIndex) -> None:
    blocks = prompt(1, 8)
    index.apply("a", [Stored(blocks[:2])], rank=0)
    index.apply("a", [Stored(blocks[:5])], rank=3)
    found = index.locate(chain(blocks), index.rows(replicas("other", "a", ranks=4)))
    assert found.reach[0].tolist() == [0, 5 * BLOCK]
    assert found.dp_rank is not None
    assert found.dp_rank.tolist() == [-1, 3]
    index.forget("a", rank=3)
    assert reach(index, blocks, "a")[0] == 2


def test_a_shared_filesystem_counts_for_every_member(index: PrefixIndex) -> None:
    blocks = prompt(1, 6)
    for member in ("a", "b"):
        assert index.share("fs:mount", member)
    index.apply("a", [Stored(blocks[:2])])
    index.apply("fs:mount", [Stored(blocks[:5], "fs")])
    assert reach(index, blocks, "a") == [2, 2, 5, 5]
    assert reach(index, blocks, "b") == [0, 0, 5, 5]
    assert reach(index, blocks, "c") == [0, 0, 0, 0]


def test_hybrid_matches_end_at_a_recurrent_checkpoint(index: PrefixIndex) -> None:
    layout = Layout(attention=0, windows=((1, 1), (2, 1)))
    blocks = prompt(1, 10)
    index.apply("a", [Stored(blocks[:9], group=0), Stored([blocks[3], blocks[6]], group=1)])
    index.apply("a", [Stored([blocks[3]], group=2), Stored([blocks[6]], "host", group=2)])
    # Block 6 has one state on the GPU and one in host memory: with the host tier the prefix ends there.
    assert reach(index, blocks, "a", layout) == [4, 7, 7, 7]
    assert reach(index, blocks, "a") == [9, 9, 9, 9]


def test_a_sliding_window_needs_its_last_blocks_only(index: PrefixIndex) -> None:
    layout = Layout(attention=0, windows=((1, 3),))
    blocks = prompt(1, 10)
    index.apply("a", [Stored(blocks, group=0), Stored([blocks[i] for i in (0, 1, 4, 5, 6, 8)], group=1)])
    assert reach(index, blocks, "a", layout)[0] == 7
    index.apply("a", [Removed([blocks[5]], group=1)])
    assert reach(index, blocks, "a", layout)[0] == 2


def test_chunks_below_the_gpu_are_known_by_their_last_block(index: PrefixIndex) -> None:
    layout = Layout(chunk=4)
    blocks = prompt(1, 14)
    index.apply("a", [Stored(blocks[:6]), Stored([blocks[3], blocks[7], blocks[11]], "host"), Removed(blocks[2:6])])
    # Blocks 2 to 11 lie in host memory though only 3, 7 and 11 were named; a chunk that is not full does not.
    assert reach(index, blocks, "a", layout) == [2, 12, 12, 12]
    index.apply("a", [Removed([blocks[7]], "host")])
    assert reach(index, blocks, "a", layout) == [2, 4, 4, 4]
    assert reach(index, [], "a", layout) == [0, 0, 0, 0]


def test_groups_never_share_a_key(index: PrefixIndex) -> None:
    index.apply("a", [Stored(prompt(1, 4), group=3)])
    assert reach(index, prompt(1, 4), "a")[0] == 0


def test_sampling_keeps_fewer_blocks_and_never_more_prefix() -> None:
    index = PrefixIndex.create(Sizes(blocks=5000, sets=64, holders=64), sample=8)
    blocks = prompt(1, 2000)
    index.apply("a", [Stored(blocks[:1500])])
    assert index.live < 1500 / 4
    assert 1400 < reach(index, blocks, "a")[0] <= 1500


def test_the_oldest_blocks_go_when_the_log_is_full() -> None:
    index = PrefixIndex.create(SMALL)
    kept = prompt(0, 50)
    index.apply("a", [Stored(kept)])
    for number in range(1, 400):
        index.apply("a", [Stored(prompt(number, 50)), Stored(kept)])
    assert index.live <= SMALL.log
    assert reach(index, kept, "a")[0] == 50  # stored again and again: young, wherever it lies
    assert reach(index, prompt(1, 50), "a")[0] == 0
    assert reach(index, prompt(399, 50), "a")[0] == 50


def test_blocks_keep_their_owners_when_they_move_in_the_log() -> None:
    index = PrefixIndex.create(Sizes(blocks=20_000, sets=64, holders=64))
    lasting = [prompt(number, 100) for number in range(50)]
    for number, blocks in enumerate(lasting):
        index.apply("ab"[number % 2], [Stored(blocks)])
    for number in range(1000, 1400):
        index.apply("c", [Stored(prompt(number, 200)), Removed(prompt(number, 200))])
    for number, blocks in enumerate(lasting):
        assert reach(index, blocks, "ab"[number % 2])[0] == 100
        assert reach(index, blocks, "ba"[number % 2])[0] == 0
    assert index.live == 5000


def test_no_deleted_slot_stays_behind() -> None:
    index = PrefixIndex.create(SMALL)
    source = random.Random(3)
    for _ in range(60):
        index.apply("a", [Stored([source.getrandbits(64) for _ in range(500)])])
    slots, header = index._memory.slots, index._memory.header
    # Otherwise every slot that was ever used would be taken by now, and each miss would walk the whole table.
    assert np.count_nonzero(slots == 1) == 0
    assert np.count_nonzero(slots) == header[HEAD] - header[TAIL] <= SMALL.log
    everything = index._memory.keys
    assert (index._table.find(everything[np.isin(np.arange(SMALL.log) + 2, slots)]) >= 0).all()


def test_no_room_for_another_set_means_unknown() -> None:
    index = PrefixIndex.create(Sizes(blocks=500, sets=8, holders=64))
    blocks = prompt(1, 12)
    for number in range(12):
        index.apply(f"r{number}", [Stored(blocks[number:])])
    for number in range(12):
        held = index.holds(f"r{number}", np.array(blocks, np.uint64))
        assert not held[:number].any()


def test_batches_longer_than_a_chunk(index: PrefixIndex) -> None:
    index = PrefixIndex.create(Sizes(blocks=20_000, sets=64, holders=64))
    blocks = prompt(1, 2 * CHUNK + 100)
    index.apply("a", [Stored(blocks + blocks[:50])])
    assert reach(index, blocks, "a")[0] == len(blocks)


def test_a_chain_scattered_over_the_log_is_found() -> None:
    index = PrefixIndex.create(Sizes(blocks=5000, sets=64, holders=64))
    blocks = prompt(1, 1500)
    shuffled = random.Random(1).sample(blocks, len(blocks))
    index.apply("a", [Stored([block]) for block in shuffled])
    assert reach(index, blocks, "a")[0] == 1500
    index.apply("a", [Removed([blocks[1100]])])
    assert reach(index, blocks, "a")[0] == 1100


def test_turns_of_a_conversation_lie_apart_in_the_log() -> None:
    index = PrefixIndex.create(Sizes(blocks=5000, sets=64, holders=64))
    system, turns = prompt(0, 40), [prompt(1 + number, 50) for number in range(6)]
    for name in "abcdefgh":
        index.apply(name, [Stored(system)])
    for number, turn in enumerate(turns):
        index.apply("a", [Stored(turn), Stored(turn[10:20])])  # stored again: the same set, another value
        index.apply("h", [Stored(prompt(100 + number, 30))])
    index.apply("b", [Stored(turns[0][:25])])
    blocks = [*system, *(block for turn in turns for block in turn), *prompt(999, 9)]
    reached = {name: reach(index, blocks, name)[0] for name in "abcdefghi"}
    assert reached == {"a": 340, "b": 65, **dict.fromkeys("cdefgh", 40), "i": 0}
    index.apply("a", [Removed([turns[4][7]])])
    assert reach(index, blocks, "a")[0] == 40 + 200 + 7


def test_more_runs_than_integers_are_good_for() -> None:
    index = PrefixIndex.create(Sizes(blocks=5000, sets=64, holders=128))
    blocks = prompt(1, 600)
    index.apply("a", [Stored(blocks), Stored(blocks[::2], "host")])
    index.apply("b", [Stored(blocks[1::3]), Stored(blocks[:1], "fs")])
    assert reach(index, blocks, "a") == [600] * 4
    assert reach(index, blocks, "b") == [0, 0, 1, 1]
    index.apply("a", [Removed([blocks[300]])])
    assert reach(index, blocks, "a") == [300, 301, 301, 301]
    index.apply("a", [Removed(blocks[:1]), Removed(blocks[:1], "host")])
    assert reach(index, blocks, "a") == [0] * 4


def test_many_holders_of_one_prompt() -> None:
    index = PrefixIndex.create(Sizes(blocks=5000, sets=512, holders=128))
    blocks = prompt(1, 100)
    names = [f"pool/{number}" for number in range(100)]
    for number, name in enumerate(names):
        index.apply(name, [Stored(blocks[: 1 + number % 7 * 10]), Stored(blocks[: number % 3 * 20], "host")])
    found = index.locate(chain(blocks), index.rows(replicas(*names)))
    assert found.reach[0].tolist() == [(1 + number % 7 * 10) * BLOCK for number in range(100)]
    assert found.reach[1].tolist() == [max(1 + number % 7 * 10, number % 3 * 20) * BLOCK for number in range(100)]


def test_a_reader_never_waits_for_a_writer_that_died() -> None:
    index = PrefixIndex.create(SMALL)
    index.apply("a", [Stored(prompt(1, 4))])
    with index._writing():
        assert reach(index, prompt(1, 4), "a")[0] == 0
    assert reach(index, prompt(1, 4), "a")[0] == 4


PROMPTS = [prompt(number // 2, 12)[:6] + prompt(100 + number, 12) for number in range(6)]
STRETCH = st.tuples(st.integers(0, 5), st.integers(0, 17), st.integers(1, 18))
EVENT = st.one_of(
    st.tuples(st.just("store"), st.sampled_from("abc"), st.sampled_from(TIERS), STRETCH),
    st.tuples(st.just("remove"), st.sampled_from("abc"), st.sampled_from(TIERS), STRETCH),
    st.tuples(st.just("clear"), st.sampled_from("abc"), st.just("gpu"), STRETCH),
    st.tuples(st.just("forget"), st.sampled_from("abc"), st.just("gpu"), STRETCH),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENT, max_size=40), st.integers(1, 8))
def test_equals_the_truth_after_any_events(steps: list, batch: int) -> None:
    index = PrefixIndex.create(SMALL)
    truth: dict[str, dict[str, set[int]]] = {name: {tier: set() for tier in TIERS} for name in "abc"}
    waiting: dict[str, list[KvEvent]] = {name: [] for name in "abc"}
    for number, (what, name, tier, (which, start, count)) in enumerate(steps):
        blocks = PROMPTS[which][start : start + count]
        if what == "store":
            waiting[name].append(Stored(blocks, tier))
            truth[name][tier] |= set(blocks)
        elif what == "remove":
            waiting[name].append(Removed(blocks, tier))
            truth[name][tier] -= set(blocks)
        elif what == "clear":
            waiting[name].append(Cleared())
            truth[name]["gpu"].clear()
        else:
            waiting[name].clear()
            index.forget(name)
            truth[name] = {tier: set() for tier in TIERS}
        if number % batch == 0:
            index.apply(name, waiting[name])
            waiting[name] = []
    for name, events in waiting.items():
        index.apply(name, events)
    for name, tiers in truth.items():
        for hashes in PROMPTS:
            assert reach(index, hashes, name) == usable(tiers, hashes)
        everything = np.array([block for hashes in PROMPTS for block in hashes], np.uint64)
        held = set().union(*tiers.values())
        assert index.holds(name, everything).tolist() == [int(block) in held for block in everything]
    assert index.live == len(set().union(*(blocks for tiers in truth.values() for blocks in tiers.values())))
