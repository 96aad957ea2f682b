from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from tiering.hashing.text import TextHasher

TEXT = random.Random(7).randbytes(300_000)


def keys(data: bytes, hasher: TextHasher | None = None, seed: int = 1) -> list[int]:
    return (hasher or TextHasher()).chain_of([data], seed).keys.tolist()


@settings(deadline=None)
@given(st.integers(0, 300_000), st.integers(0, 300_000))
def test_a_longer_prompt_repeats_the_keys_of_a_shorter_one(one: int, other: int) -> None:
    short, long = sorted((one, other))
    first = keys(TEXT[:short])
    assert keys(TEXT[:long])[: len(first)] == first


@settings(deadline=None)
@given(st.lists(st.integers(0, 300_000), min_size=1, max_size=8))
def test_a_memo_changes_no_key(sizes: list[int]) -> None:
    hasher = TextHasher(memo_keys=100)
    for size in sizes:
        assert keys(TEXT[:size], hasher) == keys(TEXT[:size])


@settings(deadline=None)
@given(st.integers(0, 99_999))
def test_a_changed_byte_changes_its_block_and_all_after_it(at: int) -> None:
    size = 100_000
    changed = TEXT[:at] + bytes([TEXT[at] ^ 1]) + TEXT[at + 1 : size]
    hasher = TextHasher()
    before, after = keys(TEXT[:size], hasher), keys(changed, hasher)
    chain = hasher.chain_of([TEXT[:size]], 1).chain(size)
    same = sum(1 for one, other in zip(before, after, strict=True) if one == other)
    assert before[:same] == after[:same]
    assert int(chain.ends[same]) <= at
    assert same == len(before) or at < int(chain.ends[same + 1])


def test_seeds_keep_owners_apart() -> None:
    hasher = TextHasher()
    seeds = {hasher.seed("model", "tenant-a"), hasher.seed("model", "tenant-b"), hasher.seed("model", None)}
    seeds |= {hasher.seed("model", ""), hasher.seed("modelt", "enant-a"), hasher.seed("model")}
    assert len(seeds) == 6
    chains = [keys(TEXT[:50_000], hasher, seed) for seed in seeds]
    assert len({key for chain in chains for key in chain}) == sum(len(chain) for chain in chains)


def test_segments_are_kept_apart() -> None:
    hasher = TextHasher()
    first = hasher.chain_of([b"a" * 5000, b"b" * 5000], 1).keys
    assert first != hasher.chain_of([b"a" * 5001, b"b" * 4999], 1).keys


def test_ends_are_scaled_to_the_tokens_of_the_prompt() -> None:
    chain = TextHasher().chain_of([TEXT[:100_000]], 1).chain(tokens=25_000)
    assert chain.ends[0] == 0
    assert chain.ends[1] == 256
    assert chain.ends[-1] <= 25_000
    assert len(chain.ends) == len(chain.keys) + 1
    assert TextHasher().chain_of([], 1).chain(tokens=0).ends.tolist() == [0]


def test_the_memo_has_a_hard_cap() -> None:
    hasher = TextHasher(memo_keys=200)
    for number in range(100):
        keys(bytes([number]) + TEXT[:70_000], hasher)
    assert hasher._memo.weight <= 200
