"""Which store an address names."""

from __future__ import annotations

from backends.contracts import Clock
from gateway.config.model import State
from gateway.state.base import StateStore
from gateway.state.memory import MemoryStore


def open_store(config: State, clock: Clock) -> StateStore:
    """The store of `state.url`. Nothing is connected yet."""
    if config.url.startswith("memory:"):
        return MemoryStore(clock, limit_bytes=config.memory_limit_bytes)
    from gateway.state.redis import RedisStore  # a third of a second that most gateways need not spend

    return RedisStore(config.url, clock)
