"""The contract of a state store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class StateUnavailable(Exception):  # noqa: N818 - a condition of the world, like a refused connection
    """The store cannot be reached, or did not answer in time. What was asked may or may not have been done."""


class StateTooLarge(Exception):  # noqa: N818 - see above
    """A value is larger than the store, or its owner's quota, may ever hold."""


class Entry(NamedTuple):
    """A value and its version. Versions only grow, over all keys and deletions: one is a fencing token too."""

    value: bytes
    version: int


@dataclass(frozen=True, slots=True)
class Quota:
    """Whose entry it is, and how many bytes of values that owner may have; beyond, its oldest entries go."""

    owner: str
    limit_bytes: int


class StateStore(Protocol):
    """Small values by key, each with a life. Every call may raise StateUnavailable.

    An entry may go before its time: when the store or a quota is full, the entries least recently written or
    touched go first.
    """

    async def get(self, key: str) -> Entry | None:
        """The entry, None when there is none (any more)."""
        ...

    async def get_many(self, keys: Sequence[str]) -> list[Entry | None]:
        """The entries in the order of `keys`, in one round trip."""
        ...

    async def put(
        self, key: str, value: bytes, ttl_s: float, *, version: int | None = None, quota: Quota | None = None
    ) -> int:
        """Write an entry that lives `ttl_s` seconds; returns its version.

        With `version` only over the entry of that version (0: only where there is none); otherwise nothing is
        written and 0 is returned. Raises StateTooLarge.
        """
        ...

    async def delete(self, key: str) -> bool:
        """Remove an entry; whether there was one."""
        ...

    async def touch(self, keys: Sequence[str], ttl_s: float) -> None:
        """Let entries live `ttl_s` seconds from now. Those that are gone stay gone."""
        ...

    async def add(self, key: str, amount: int, ttl_s: float) -> int:
        """Add to a counter and return its new value. It lives `ttl_s` seconds from its first change.

        Counters have names of their own: they are no entries.
        """
        ...

    async def ready(self) -> bool:
        """Whether a write would very likely succeed now. Never raises."""
        ...

    async def aclose(self) -> None:
        """Let go of connections."""
        ...
