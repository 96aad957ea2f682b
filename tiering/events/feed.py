"""The event feed: ZMQ sockets around the pure trackers.

One SUB socket per replica and DP rank, a DEALER for each replay. Receive queues are bounded: under a flood the engine's
publisher drops batches for us, which shows as a gap; engines are never slowed down, and neither is traffic, since the
feed gives the loop back after every few milliseconds of work.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass

import zmq
import zmq.asyncio
import zmq.utils.monitor

from backends.contracts import Clock
from tiering.events.decode import Decoder, KvEvent
from tiering.events.discovery import Source
from tiering.events.tracker import Action, Apply, Counts, Forget, Phase, Replay, Tracker
from tiering.index.prefix import PrefixIndex

_HIGH_WATER = 4096  # batches queued for us per publisher
_AT_ONCE = 64  # batches taken in together before the loop gets its turn
_TICK_S = 0.5
_REPLAY_PATIENCE_S = 2.0
_END_SEQ = b"\xff" * 8
_RECONNECT_MS, _RECONNECT_MAX_MS = 100, 5000


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """How one publisher's stream is doing."""

    source: Source
    phase: Phase
    counts: Counts
    heard_at_s: float | None  # monotonic
    lost_at_s: float | None


Observer = Callable[[Source, Sequence[KvEvent]], None]
Report = Callable[[Source, str], None]


class EventFeed:
    """Follows the publishers it is told to, and keeps the index up to date.

    `run` belongs to the caller's supervisor and ends when it is cancelled. `observe` sees all events taken in (for
    hash checks), `report` hears of every loss: (source, reason).
    """

    def __init__(
        self,
        index: PrefixIndex,
        clock: Clock,
        *,
        observe: Observer = lambda _source, _events: None,
        report: Report = lambda _source, _reason: None,
    ) -> None:
        self._index = index
        self._clock = clock
        self._observe = observe
        self._report = report
        self._wanted: frozenset[Source] = frozenset()
        self._changed = asyncio.Event()
        self._links: dict[Source, _Link] = {}

    def set_sources(self, sources: Iterable[Source]) -> None:
        """Follow exactly these. Blocks of replicas that are no longer followed are forgotten."""
        self._wanted = frozenset(sources)
        self._changed.set()

    def status(self) -> tuple[SourceStatus, ...]:
        """Of every publisher followed."""
        return tuple(link.status() for link in self._links.values())

    def lost_at(self, replica: str) -> float | None:
        """Monotonic time of the last loss of a replica's events, None when there was none."""
        times = [link.tracker.lost_at for source, link in self._links.items() if source.replica == replica]
        return max((time for time in times if time is not None), default=None)

    async def run(self) -> None:
        """Follow the wanted sources until cancelled."""
        context = zmq.asyncio.Context()
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    self._changed.clear()
                    self._reconcile(context, group)
                    await self._changed.wait()
        finally:
            # Nobody follows any more, so nothing may be believed any more.
            for source, link in self._links.items():
                link.close()
                self._index.forget(source.replica, source.rank)
            self._links.clear()
            context.destroy(linger=0)

    def _reconcile(self, context: zmq.asyncio.Context, group: asyncio.TaskGroup) -> None:
        for source in self._links.keys() - self._wanted:
            self._links.pop(source).close()
            self._index.forget(source.replica, source.rank)
            if not any(other.replica == source.replica for other in self._wanted):
                self._index.remove(source.replica)
        for source in self._wanted - self._links.keys():
            link = _Link(source, context, group, self._clock, self._take)
            try:
                link.start()
            except zmq.ZMQError as error:
                self._report(source, f"cannot subscribe: {error.strerror}")
                continue
            self._links[source] = link

    def _take(self, source: Source, actions: Sequence[Apply | Forget]) -> None:
        events: list[KvEvent] = []
        for action in actions:
            if isinstance(action, Apply):
                events += action.events
            else:
                events = []  # what came before would be forgotten at once
                self._index.forget(source.replica, source.rank)
                self._report(source, action.reason)
        if events:
            self._index.apply(source.replica, events, source.rank)
            self._observe(source, events)


class _Link:
    """Sockets and tasks of one publisher."""

    def __init__(
        self,
        source: Source,
        context: zmq.asyncio.Context,
        group: asyncio.TaskGroup,
        clock: Clock,
        take: Callable[[Source, Sequence[Apply | Forget]], None],
    ) -> None:
        self._source = source
        self._context = context
        self._group = group
        self._clock = clock
        self._take = take
        self._tasks: set[asyncio.Task[None]] = set()
        self._heard_at: float | None = None
        self.tracker = Tracker(
            Decoder(source.engine), can_replay=source.replay_endpoint is not None, patience_s=_REPLAY_PATIENCE_S
        )

    def start(self) -> None:
        """Begin to follow."""
        subscriber = self._context.socket(zmq.SUB)
        monitor = subscriber.get_monitor_socket(zmq.EVENT_HANDSHAKE_SUCCEEDED)
        try:
            subscriber.setsockopt(zmq.RCVHWM, _HIGH_WATER)
            subscriber.setsockopt(zmq.RECONNECT_IVL, _RECONNECT_MS)
            subscriber.setsockopt(zmq.RECONNECT_IVL_MAX, _RECONNECT_MAX_MS)
            subscriber.setsockopt(zmq.IPV6, 1)
            subscriber.setsockopt(zmq.SUBSCRIBE, self._source.topic.encode())
            subscriber.connect(self._source.endpoint)
        except zmq.ZMQError:
            subscriber.disable_monitor()
            monitor.close(0)
            subscriber.close(0)
            raise
        for work in (self._follow(subscriber), self._watch(subscriber, monitor), self._tick()):
            self._spawn(work)

    def close(self) -> None:
        """Stop following."""
        for task in self._tasks:
            task.cancel()

    def status(self) -> SourceStatus:
        return SourceStatus(self._source, self.tracker.phase, self.tracker.counts, self._heard_at, self.tracker.lost_at)

    async def _follow(self, subscriber: zmq.asyncio.Socket) -> None:
        try:
            while True:
                actions = self._hear(await subscriber.recv_multipart())
                while len(actions) < _AT_ONCE and await subscriber.poll(0):
                    actions += self._hear(await subscriber.recv_multipart())
                self._do(actions)
                await asyncio.sleep(0)
        finally:
            subscriber.disable_monitor()
            subscriber.close(0)

    async def _watch(self, subscriber: zmq.asyncio.Socket, monitor: zmq.asyncio.Socket) -> None:
        try:
            while not subscriber.closed:
                zmq.utils.monitor.parse_monitor_message(await monitor.recv_multipart())
                # What was published while we were away is in the replay buffer, if anywhere.
                self._do(self.tracker.connected(self._clock.monotonic()))
        finally:
            monitor.close(0)

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_S)
            self._do(self.tracker.tick(self._clock.monotonic()))

    async def _replay(self, request: Replay) -> None:
        dealer = self._context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.IPV6, 1)
        try:
            dealer.connect(self._source.replay_endpoint or "")
            async with asyncio.timeout(_REPLAY_PATIENCE_S):
                await dealer.send_multipart([b"", request.start.to_bytes(8, "big")])
                while True:
                    frames = await dealer.recv_multipart()
                    if len(frames) < 3 or frames[-2] == _END_SEQ:
                        break
                    self._do(
                        self.tracker.replayed(request.ticket, _number(frames[-2]), frames[-1], self._clock.monotonic())
                    )
        except (TimeoutError, zmq.ZMQError):
            pass  # the tracker sees that something is missing, and says what to do
        finally:
            dealer.close(0)
        self._do(self.tracker.replay_ended(request.ticket, self._clock.monotonic()))

    def _hear(self, frames: list[bytes]) -> list[Action]:
        self._heard_at = now = self._clock.monotonic()
        return self.tracker.live(_number(frames[1]), frames[2], now) if len(frames) == 3 else []

    def _do(self, actions: list[Action]) -> None:
        known = [action for action in actions if not isinstance(action, Replay)]
        if known:
            self._take(self._source, known)
        for action in actions:
            if isinstance(action, Replay):
                self._spawn(self._replay(action))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._group.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _number(frame: bytes) -> int:
    return int.from_bytes(frame, "big")
