"""The bounds of the store in memory."""

import pytest

from gateway.state.base import StateTooLarge
from gateway.state.memory import MemoryStore
from tests.support.clock import ManualClock


async def test_the_least_recently_touched_go_when_bytes_run_out() -> None:
    store = MemoryStore(ManualClock(), limit_bytes=3 * 1301)
    for key in "abc":
        await store.put(key, b"x" * 1000, 60)
    await store.touch(["a"], 60)
    await store.put("d", b"x" * 1000, 60)
    assert [entry is not None for entry in await store.get_many("abcd")] == [True, False, True, True]
    assert store.total_bytes == 3 * 1301


async def test_the_number_of_entries_is_bounded() -> None:
    store = MemoryStore(ManualClock(), limit_bytes=1 << 20, limit_entries=10)
    for key in range(50):
        await store.put(str(key), b"", 60)
    assert len(store) == 10


async def test_a_value_larger_than_the_store_is_refused() -> None:
    store = MemoryStore(ManualClock(), limit_bytes=1000)
    with pytest.raises(StateTooLarge):
        await store.put("a", b"x" * 1000, 60)
    assert len(store) == 0
