"""Block pool, LRU store, and the FIFOs of the fs tier."""

from __future__ import annotations

import pytest

from backends.profiles import FsTier
from backends.simulator.kvcache import BlockPool, FsStore, LruStore


def test_pool_pins_names_and_releases() -> None:
    pool = BlockPool(4)
    assert pool.take([], 3) == []
    assert (pool.in_use, pool.unnamed) == (3, 3)
    assert pool.name("a")
    assert pool.name("b")
    assert pool.match(["a", "b", "c"]) == 2
    pool.release(["a", "b"], 1)
    assert (pool.in_use, len(pool)) == (0, 2)
    assert pool.fits(["a"], 3)
    assert not pool.fits(["a"], 4)
    assert pool.take(["a"], 3) == ["b"]
    assert pool.in_use == 4
    assert "b" not in pool


def test_a_block_shared_by_two_stays_until_both_are_gone() -> None:
    pool = BlockPool(2)
    pool.take([], 1)
    pool.name("a")
    pool.take(["a"], 0)
    pool.release(["a"], 0)
    assert not pool.fits([], 2)
    pool.release(["a"], 0)
    assert pool.fits([], 2)
    pool.clear()
    assert list(pool.blocks()) == []


def test_a_block_computed_twice_is_new_once() -> None:
    pool = BlockPool(4)
    pool.take([], 2)
    assert pool.name("a")
    assert not pool.name("a")
    pool.release(["a"], 0)
    pool.release(["a"], 0)
    assert (len(pool), pool.unnamed) == (1, 0)


def test_lru_store_keeps_the_newest() -> None:
    store = LruStore(2)
    assert store.put("a") == store.put("b") == store.put("a") == []
    assert store.put("c") == ["b"]
    assert list(store.blocks()) == ["a", "c"]
    assert len(store) == 2
    store.clear()
    assert "a" not in store


def disk() -> FsStore:
    tier = FsTier(0.5, 100.0, 10.0, 1000, 50.0, 0.0)
    return FsStore(tier, block_tokens=10)


def test_reads_wait_for_each_other() -> None:
    store = disk()
    assert store.read_s(10) == pytest.approx(1.5)
    assert store.read(10, now=2.0) == pytest.approx(3.5)
    assert store.read(10, now=2.0) == pytest.approx(5.0)
    assert store.read(10, now=9.0) == pytest.approx(10.5)


def test_writes_become_visible_in_their_turn() -> None:
    store = disk()
    store.write(["a", "b"], None, 10, now=0.0)
    assert store.settle(1.9) == []
    assert store.settle(2.0) == [("a", None)]
    assert "b" not in store.contents
    store.write(["a", "c"], None, 10, now=2.5)
    assert store.settle(10.0) == [("b", "a"), ("c", "a")]
    store.write(["c"], "a", 10, now=20.0)
    assert store.settle(30.0) == []
