"""`memory://`: the store of a gateway that is alone. It ends with the process."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from backends.contracts import Clock
from gateway.state.base import Entry, Quota, StateTooLarge

_ENTRIES = 200_000
_COUNTERS = 100_000
_OVERHEAD = 300  # bytes that an entry costs beside key and value


class _Held:
    """One entry, and to whose account it goes."""

    __slots__ = ("entry", "owner", "size", "until")

    def __init__(self, entry: Entry, until: float, owner: str, size: int) -> None:
        self.entry = entry
        self.until = until
        self.owner = owner
        self.size = size


class _Account:
    """What one owner has: keys, the oldest first, and the bytes of their values."""

    __slots__ = ("keys", "total")

    def __init__(self) -> None:
        self.keys: OrderedDict[str, None] = OrderedDict()
        self.total = 0


class MemoryStore:
    """A `StateStore` bounded in bytes and entries; what was least recently written or touched goes first."""

    def __init__(self, clock: Clock, *, limit_bytes: int, limit_entries: int = _ENTRIES) -> None:
        """`limit_bytes` counts keys, values and a flat overhead."""
        self._clock = clock
        self._limit_bytes = limit_bytes
        self._limit_entries = limit_entries
        self._held: OrderedDict[str, _Held] = OrderedDict()
        self._accounts: dict[str, _Account] = {}
        self._counters: OrderedDict[str, tuple[int, float]] = OrderedDict()
        self._version = 0
        self.total_bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    async def get(self, key: str) -> Entry | None:
        """See `StateStore.get`."""
        held = self._alive(key)
        return held.entry if held else None

    async def get_many(self, keys: Sequence[str]) -> list[Entry | None]:
        """See `StateStore.get_many`."""
        return [held.entry if (held := self._alive(key)) else None for key in keys]

    async def put(
        self, key: str, value: bytes, ttl_s: float, *, version: int | None = None, quota: Quota | None = None
    ) -> int:
        """See `StateStore.put`."""
        size = len(key) + len(value) + _OVERHEAD
        if size > self._limit_bytes or (quota is not None and len(value) > quota.limit_bytes):
            raise StateTooLarge
        old = self._alive(key)
        if version is not None and version != (old.entry.version if old else 0):
            return 0
        if old is not None:
            self._remove(key)
        self._version += 1
        held = _Held(Entry(value, self._version), self._clock.monotonic() + ttl_s, quota.owner if quota else "", size)
        self._held[key] = held
        self.total_bytes += size
        if quota is not None:
            self._charge(key, len(value), quota)
        while self.total_bytes > self._limit_bytes or len(self._held) > self._limit_entries:
            self._remove(next(iter(self._held)))
        return self._version

    async def delete(self, key: str) -> bool:
        """See `StateStore.delete`."""
        if self._alive(key) is None:
            return False
        self._remove(key)
        return True

    async def touch(self, keys: Sequence[str], ttl_s: float) -> None:
        """See `StateStore.touch`."""
        until = self._clock.monotonic() + ttl_s
        for key in keys:
            held = self._alive(key)
            if held is None:
                continue
            held.until = until
            self._held.move_to_end(key)
            if held.owner:
                self._accounts[held.owner].keys.move_to_end(key)

    async def add(self, key: str, amount: int, ttl_s: float) -> int:
        """See `StateStore.add`."""
        now = self._clock.monotonic()
        count, until = self._counters.get(key, (0, 0.0))
        if until <= now:
            count, until = 0, now + ttl_s
        self._counters[key] = (count + amount, until)
        self._counters.move_to_end(key)
        if len(self._counters) > _COUNTERS:
            self._counters.popitem(last=False)
        return count + amount

    async def ready(self) -> bool:
        """See `StateStore.ready`."""
        return True

    async def aclose(self) -> None:
        """See `StateStore.aclose`."""

    def _alive(self, key: str) -> _Held | None:
        held = self._held.get(key)
        if held is not None and held.until <= self._clock.monotonic():
            self._remove(key)
            return None
        return held

    def _charge(self, key: str, size: int, quota: Quota) -> None:
        account = self._accounts.setdefault(quota.owner, _Account())
        account.keys[key] = None
        account.total += size
        while account.total > quota.limit_bytes:
            self._remove(next(iter(account.keys)))

    def _remove(self, key: str) -> None:
        held = self._held.pop(key)
        self.total_bytes -= held.size
        if not held.owner:
            return
        account = self._accounts[held.owner]
        del account.keys[key]
        account.total -= len(held.entry.value)
        if not account.keys:
            del self._accounts[held.owner]
