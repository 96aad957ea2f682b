"""Sessions and the replicas that served them: a hint for the cost of a decision, never a chain."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

# Hints in order of trust: what a client says about its cache, then about its session, then about its history.
HINTS: Final = ("prompt_cache_key", "session_id", "conversation", "previous_response_id", "user")


def session_key(tenant: str, hints: Mapping[str, str | None]) -> str:
    """One key from the hints that a dialect found; "" when it found none. Keys of two tenants never meet."""
    for name in HINTS:
        value = hints.get(name)
        if value:
            return f"{tenant}\x1f{name}\x1f{value}"
    return ""


class AffinityTable:
    """Which replica served each session last. Bounded; a session silent for `ttl_s` is forgotten."""

    __slots__ = ("_capacity", "_homes", "_ttl_s")

    def __init__(self, *, capacity: int = 100_000, ttl_s: float = 3600.0) -> None:
        self._capacity = capacity
        self._ttl_s = ttl_s
        self._homes: OrderedDict[str, tuple[float, str]] = OrderedDict()  # least recently served first

    def __len__(self) -> int:
        return len(self._homes)

    def home(self, session: str, now_s: float) -> str:
        """Id of the replica that served the session last; "" when unknown or too long ago."""
        known = self._homes.get(session)
        if known is None:
            return ""
        at_s, replica = known
        if now_s - at_s > self._ttl_s:
            del self._homes[session]
            return ""
        return replica

    def served(self, session: str, replica_id: str, now_s: float) -> None:
        """Note who served a session; the longest silent one makes room."""
        if not session:
            return
        self._homes.pop(session, None)
        self._homes[session] = (now_s, replica_id)
        if len(self._homes) > self._capacity:
            self._homes.popitem(last=False)

    def alias(self, session: str, other: str, now_s: float) -> None:
        """Let another key lead to the same home: a stored response's id, which a next turn will name."""
        replica = self.home(session, now_s)
        if replica:
            self.served(other, replica, now_s)
