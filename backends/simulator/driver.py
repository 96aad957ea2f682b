"""The pure engine on the wall clock: one timer, and a feed of tokens for each request."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable

from backends.simulator.engine import Engine
from backends.simulator.requests import Cached, FinishReason, Progress, SimRequest


class Feed:
    """Tokens of one request as the engine makes them. `wake` is set whenever there is something to take."""

    __slots__ = ("_ready", "cached", "finish", "first_s", "request", "submitted_s", "wake")

    def __init__(self, request: SimRequest, submitted_s: float, wake: asyncio.Event) -> None:
        self.request = request
        self.wake = wake
        self.cached = Cached()
        self.finish: FinishReason | None = None
        self.submitted_s = submitted_s  # simulated time
        self.first_s = 0.0  # simulated time of the first token
        self._ready = 0

    def push(self, progress: Progress) -> None:
        """Take over what the engine reports."""
        self._ready += progress.tokens
        self.cached = progress.cached
        self.finish = progress.finish or self.finish
        if progress.first:
            self.first_s = progress.at_s
        self.wake.set()

    def end(self, reason: FinishReason) -> None:
        """No more tokens will come."""
        self.finish = self.finish or reason
        self.wake.set()

    def take(self) -> int:
        """How many tokens came since the last call."""
        ready, self._ready = self._ready, 0
        return ready


class Driver:
    """Advances one engine while simulated time runs `scale` times as fast as real time."""

    def __init__(self, engine: Engine, *, scale: float, tick_s: float, on_step: Callable[[], None]) -> None:
        self.engine = engine
        self._scale = scale
        self._tick_s = tick_s
        self._on_step = on_step
        self._feeds: dict[str, Feed] = {}
        self._loop = asyncio.get_running_loop()
        self._start = self._loop.time()
        self._timer: asyncio.Handle | None = None
        self._due = math.inf  # real time of the timer
        self._stepped_at = -math.inf

    def now(self) -> float:
        """Simulated seconds since the start."""
        return (self._loop.time() - self._start) * self._scale

    def submit(self, request: SimRequest, wake: asyncio.Event) -> Feed:
        """Hand a request to the engine. Raises what `Engine.submit` raises."""
        now = self.now()
        self._deliver(now)
        self.engine.submit(request, now)
        feed = self._feeds[request.id] = Feed(request, now, wake)
        self._schedule()
        return feed

    def abort(self, request_id: str) -> bool:
        """End a request early; its feed ends with "abort". False when it is not running."""
        feed = self._feeds.pop(request_id, None)
        if feed is None:
            return False
        now = self.now()
        self._deliver(now)
        if feed.finish is None:
            self.engine.abort(request_id, now)
            feed.end("abort")
        self._schedule()
        return True

    def running_ids(self) -> tuple[str, ...]:
        """Requests that have not ended."""
        return tuple(self._feeds)

    def close(self) -> None:
        """Stop the timer and end every feed."""
        if self._timer is not None:
            self._timer.cancel()
        for request_id in self.running_ids():
            self.abort(request_id)
        if self._timer is not None:
            self._timer.cancel()

    def _step(self) -> None:
        self._timer = None
        self._due = math.inf
        self._deliver(self.now())
        self._schedule()

    def _deliver(self, now: float) -> None:
        self._stepped_at = self._loop.time()
        for progress in self.engine.advance(now):
            feed = self._feeds.get(progress.request.id)
            if feed is not None:
                feed.push(progress)
                if progress.finish is not None:
                    del self._feeds[progress.request.id]
        self._on_step()

    def _schedule(self) -> None:
        at = self.engine.next_event_time()
        due = math.inf if at == math.inf else max(self._start + at / self._scale, self._stepped_at + self._tick_s)
        if due == self._due:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = due
        if due <= self._loop.time():
            self._timer = self._loop.call_soon(self._step)
        elif due < math.inf:
            self._timer = self._loop.call_at(due, self._step)
