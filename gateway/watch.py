"""Time limits of attempts, looked at together: a timer for each would cost more than most of what an attempt does."""

from __future__ import annotations

import asyncio
from typing import Protocol

TICK_S = 0.1  # a limit may be noticed two of these late


class Watched(Protocol):
    """Something with time limits."""

    def look(self, now_s: float) -> None:
        """Act on limits that are over at `now_s` (loop time)."""
        ...


class Watch:
    """Everything with a time limit in this process. `add` and `discard` are as cheap as a set's."""

    __slots__ = ("_tick_s", "_watched", "add", "discard", "now_s")

    def __init__(self, tick_s: float = TICK_S) -> None:
        """To be made inside the running loop."""
        self._tick_s = tick_s
        # Loop time, at most a tick ahead: reading it costs nothing, and what is timed by it never ends early.
        self.now_s = asyncio.get_running_loop().time() + tick_s
        self._watched: set[Watched] = set()
        self.add = self._watched.add
        self.discard = self._watched.discard

    async def run(self) -> None:
        """Look at everything every `tick_s`, until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._tick_s)
            now_s = loop.time()
            self.now_s = now_s + self._tick_s
            for watched in tuple(self._watched):
                watched.look(now_s)
