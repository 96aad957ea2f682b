"""Prefixes by integers and by arrays: the same, and what the definition says."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from backends.contracts import TIERS
from tiering.index.locate import Prefixes, _of_few, _of_many
from tiering.index.memory import I64, U64

HOLDERS = 128
SEEDS = st.integers(0, 1 << 32)


def masks_of(held: np.ndarray) -> U64:
    """Masks (r, tiers, words) of what is held (r, tiers, holders)."""
    return np.packbits(held, axis=-1, bitorder="little").view(np.uint64)


def by_definition(held: np.ndarray, starts: I64) -> I64:
    """Blocks (tiers, holders): the GPU up to its first gap, then only what lies below."""
    result = np.zeros(held.shape[1:], np.int64)
    for tier in range(len(TIERS)):
        for holder in range(held.shape[2]):
            on_gpu, end = True, 0
            for run in range(len(held)):
                on_gpu = on_gpu and bool(held[run, 0, holder])
                if not on_gpu and not held[run, 1 : tier + 1, holder].any():
                    break
                end = int(starts[run + 1])
            result[tier, holder] = end
    return result


def written(found: Prefixes) -> I64:
    result = np.zeros((len(TIERS), HOLDERS), np.int64)
    for tier, holder, end in found.each() if found.usable else ():
        result[tier, holder] = end
    return result


def spread(found: Prefixes) -> I64:
    result = np.zeros((len(TIERS), HOLDERS), np.int64)
    if found.usable:
        holders, blocks = found.arrays()
        result[:, holders] = blocks
    return result


@settings(max_examples=60, deadline=None)
@given(SEEDS, st.integers(1, 40), st.sampled_from([0.0, 0.02, 0.3, 0.9, 0.99, 1.0]), st.sampled_from([1, 4, HOLDERS]))
def test_both_ways_follow_the_definition(seed: int, runs: int, density: float, owners: int) -> None:
    source = np.random.default_rng(seed)
    held = source.random((runs, len(TIERS), HOLDERS)) < density
    held[:, :, source.permutation(HOLDERS)[owners:]] = False
    starts = np.cumsum(np.concatenate(([0], source.integers(1, 9, runs))))
    truth = by_definition(held, starts)
    few = _of_few(masks_of(held), starts.tolist(), HOLDERS)
    many = _of_many(masks_of(held), starts)
    assert few == many
    for blocks in (written(few), spread(few)):
        assert blocks.tolist() == truth.tolist()


def test_nobody_follows_from_no_runs() -> None:
    assert _of_few([], [0], HOLDERS) == Prefixes([], [], HOLDERS)
