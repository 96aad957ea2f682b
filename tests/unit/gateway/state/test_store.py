"""What every store promises."""

import uuid

import pytest

from gateway.state.base import Quota, StateStore, StateTooLarge

from .conftest import Move


@pytest.fixture
def key() -> str:
    return uuid.uuid4().hex


async def test_what_is_put_is_there_with_a_version(store: StateStore, key: str) -> None:
    assert await store.get(key) is None
    version = await store.put(key, b"\x00value\xff", 60)
    entry = await store.get(key)
    assert entry == (b"\x00value\xff", version)
    assert version > 0


async def test_versions_only_grow_over_deletions_too(store: StateStore, key: str) -> None:
    first = await store.put(key, b"1", 60)
    assert await store.delete(key)
    assert not await store.delete(key)
    assert await store.put(key, b"2", 60) > first


async def test_a_write_over_another_version_is_refused(store: StateStore, key: str) -> None:
    first = await store.put(key, b"1", 60, version=0)
    assert first
    assert await store.put(key, b"2", 60, version=0) == 0
    second = await store.put(key, b"2", 60, version=first)
    assert second > first
    assert await store.put(key, b"3", 60, version=first) == 0
    assert await store.get(key) == (b"2", second)


async def test_many_are_read_in_order(store: StateStore, key: str) -> None:
    for name in "ab":
        await store.put(key + name, name.encode(), 60)
    entries = await store.get_many([key + "b", key + "x", key + "a"])
    assert [entry and entry.value for entry in entries] == [b"b", None, b"a"]
    assert await store.get_many([]) == []


async def test_entries_end(store: StateStore, move: Move, key: str) -> None:
    await store.put(key, b"1", 0.05)
    await move(0.1)
    assert await store.get(key) is None
    assert await store.put(key, b"2", 60, version=0) > 0


async def test_touched_entries_live_on(store: StateStore, move: Move, key: str) -> None:
    await store.put(key, b"1", 0.05)
    await store.touch([key, key + "-missing"], 60)
    await move(0.1)
    entry = await store.get(key)
    assert entry is not None
    assert entry.value == b"1"
    assert await store.get(key + "-missing") is None


async def test_a_quota_takes_its_owners_oldest(store: StateStore, move: Move, key: str) -> None:
    quota, other = Quota(key, 30), Quota(key + "-other", 30)
    await store.put(key + "x", b"x" * 30, 60, quota=other)
    for name in "abc":
        await store.put(key + name, name.encode() * 10, 60, quota=quota)
        await move(0.005)
    await store.touch([key + "a"], 60)
    await store.put(key + "d", b"d" * 10, 60, quota=quota)
    left = await store.get_many([key + name for name in "abcdx"])
    assert [entry is not None for entry in left] == [True, False, True, True, True]


async def test_what_was_deleted_replaced_or_ended_is_not_counted(store: StateStore, move: Move, key: str) -> None:
    quota = Quota(key, 30)
    for _ in range(3):
        await store.put(key + "a", b"a" * 10, 60, quota=quota)
    await store.put(key + "b", b"b" * 10, 60, quota=quota)
    await store.delete(key + "b")
    await store.put(key + "c", b"c" * 10, 0.05, quota=quota)
    await move(0.1)
    await store.get(key + "c")
    await store.put(key + "d", b"d" * 20, 60, quota=quota)
    left = await store.get_many([key + name for name in "ad"])
    assert [entry is not None for entry in left] == [True, True]


async def test_a_value_beyond_the_quota_is_refused(store: StateStore, key: str) -> None:
    with pytest.raises(StateTooLarge):
        await store.put(key, b"x" * 31, 60, quota=Quota(key, 30))
    assert await store.get(key) is None


async def test_counters_count_and_end(store: StateStore, move: Move, key: str) -> None:
    assert [await store.add(key, amount, 0.05) for amount in (2, 3, -1)] == [2, 5, 4]
    assert await store.get(key) is None
    await move(0.1)
    assert await store.add(key, 1, 60) == 1


async def test_it_is_ready(store: StateStore) -> None:
    assert await store.ready()
