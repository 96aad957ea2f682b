"""A memo with a hard cap on what it holds, not on the number of entries alone."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class BoundedMemo(Generic[K, V]):
    """Least recently used values up to a total weight, in the caller's units (keys, tokens, bytes).

    Safe to use from several threads: long prompts are hashed off the event loop.
    """

    __slots__ = ("_cap", "_entries", "_lock", "_weight")

    def __init__(self, cap: int) -> None:
        self._cap = cap
        self._weight = 0
        self._lock = threading.Lock()
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The value, which now is the most recently used; None when it is not there."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: K, value: V, weight: int) -> None:
        """Keep a value of `weight`; the least recently used go. One heavier than the cap is not kept."""
        with self._lock:
            old = self._entries.pop(key, None)
            if old is not None:
                self._weight -= old[1]
            if weight > self._cap:
                return
            self._entries[key] = (value, weight)
            self._weight += weight
            while self._weight > self._cap:
                _, (_, gone) = self._entries.popitem(last=False)
                self._weight -= gone

    def __contains__(self, key: object) -> bool:
        return key in self._entries

    @property
    def weight(self) -> int:
        """Total weight held."""
        return self._weight

    def __len__(self) -> int:
        return len(self._entries)
