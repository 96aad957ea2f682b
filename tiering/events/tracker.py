"""Order in one publisher's stream of batches: gaps, replay, restarts. Pure: bytes and times in, actions out.

A lost "removed" would leave a block in the index that the engine no longer has. So a gap is closed from the engine's
replay buffer, or everything known of that rank is forgotten: unknown beats wrong. Batches that came behind a gap wait,
up to a cap. A process that began anew counts from 0 again; when it has passed our number before we hear of it, the
time stamp of the last batch we both know tells it from the old one.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

from tiering.events.decode import BadEventError, Batch, Decoder, KvEvent


@dataclass(frozen=True, slots=True)
class Apply:
    """Events to take into the index, in order."""

    events: tuple[KvEvent, ...]


@dataclass(frozen=True, slots=True)
class Forget:
    """Forget all blocks of this rank; `reason` is for logs and metrics."""

    reason: str


@dataclass(frozen=True, slots=True)
class Replay:
    """Ask the replay socket for all batches from number `start` on. Answers come back with the ticket."""

    start: int
    ticket: int = field(default=0, compare=False)


Action = Apply | Forget | Replay


# A connection is up before our subscription has arrived at the other end; what is published in between comes neither
# from the socket nor from the replay that was asked for at once, so it is asked for again.
_SUBSCRIBED_AFTER_S = 1.0


class Phase(enum.Enum):
    """What a tracker is doing."""

    NEW = "new"  # nothing heard yet
    LIVE = "live"  # every batch so far is in the index
    GAP = "gap"  # batches are missing, the replay was asked for


@dataclass(slots=True)
class Counts:
    """Totals for metrics."""

    batches: int = 0
    gaps: int = 0
    replays: int = 0  # asked for: at every connection, and at every gap
    restarts: int = 0  # a new process: its epoch
    forgotten: int = 0  # losses that no replay made good
    bad: int = 0
    unknown_media: int = 0


class Tracker:
    """The stream of one DP rank of one replica.

    Feed it with `live` (SUB socket) and `replayed` (replay socket); carry out what it returns, in order.
    """

    __slots__ = ("_can_replay", "_cap", "_deadline", "_decoder", "_joined", "_last_at", "_next", "_patience_s",
                 "_recheck_at", "_ticket", "_trusted", "_waiting", "counts", "lost_at", "phase")  # fmt: skip

    def __init__(self, decoder: Decoder, *, can_replay: bool, waiting_cap: int = 2048, patience_s: float = 2.0) -> None:
        self._decoder = decoder
        self._can_replay = can_replay
        self._cap = waiting_cap  # batches kept behind a gap
        self._patience_s = patience_s  # for the replay to close a gap
        self._next = 0
        self._last_at = 0.0
        self._waiting: dict[int, Batch] = {}
        self._joined = False  # what the engine published before is asked for once, at the beginning of a process
        self._trusted = True  # nothing suggests that another process has taken over
        self._deadline = 0.0
        self._ticket = 0
        self._recheck_at: float | None = None
        self.phase = Phase.NEW
        self.counts = Counts()
        self.lost_at: float | None = None  # monotonic time of the last loss that no replay closed

    def live(self, seq: int, payload: bytes, now_s: float) -> list[Action]:
        """One batch from the SUB socket."""
        batch = self._decode(payload)
        if batch is None:
            return self._lose("bad batch", now_s)
        self.counts.batches += 1
        self.counts.unknown_media += batch.unknown_media
        if self.phase is Phase.NEW:
            return self._first(seq, batch, now_s)
        if seq < self._next:
            return self._back(seq, batch, now_s)
        if self.phase is Phase.GAP:
            return self._wait(seq, batch, now_s)
        if seq == self._next:
            return [self._take(seq, batch)]
        self.counts.gaps += 1
        self._waiting = {seq: batch}
        return self._ask(now_s) if self._can_replay else self._lose("gap", now_s)

    def replayed(self, ticket: int, seq: int, payload: bytes, now_s: float) -> list[Action]:
        """One batch from the replay socket, in the order it sends them."""
        if self.phase is not Phase.GAP or ticket != self._ticket:
            return []
        batch = self._decode(payload)
        if batch is None:
            return self._lose("bad batch", now_s)
        if not self._next:
            self._next = seq  # the buffer does not reach further back: what was before stays unknown
        if seq == self._next - 1:
            if batch.at != self._last_at:
                return self._restart(now_s)
            self._trusted = True
            return []
        if not self._trusted:
            return self._lose("replay begins too late", now_s)
        self._waiting.setdefault(seq, batch)
        return self._drain()

    def replay_ended(self, ticket: int, now_s: float) -> list[Action]:
        """The replay sent its end mark, or failed: what is missing now will not come."""
        if self.phase is not Phase.GAP or ticket != self._ticket:
            return []
        if self._waiting or not self._trusted:
            return self._lose("replay incomplete", now_s)
        self.phase = Phase.LIVE
        return []

    def connected(self, now_s: float) -> list[Action]:
        """The connection is up, for the first time or again: batches may be missing, the process may be another."""
        self._recheck_at = now_s + _SUBSCRIBED_AFTER_S
        if self.phase is Phase.NEW:
            return self._ask(now_s) if self._can_replay and not self._joined else []
        self._waiting = {}
        if not self._can_replay:
            return self._lose("connection lost", now_s)
        self._trusted = not self._next
        return self._ask(now_s)

    def tick(self, now_s: float) -> list[Action]:
        """Call about every second: gives up on a replay that does not come."""
        if self.phase is Phase.GAP and now_s >= self._deadline:
            return self.replay_ended(self._ticket, now_s)
        if self.phase is Phase.LIVE and self._recheck_at is not None and now_s >= self._recheck_at:
            self._recheck_at = None
            return self._ask(now_s) if self._can_replay else []
        return []

    # --- transitions -----------------------------------------------------------------------------------------

    def _first(self, seq: int, batch: Batch, now_s: float) -> list[Action]:
        if seq == 0 or not self._can_replay or self._joined:
            # Joined late without replay: what was stored before stays unknown, which is never wrong.
            self.phase = Phase.LIVE
            self._joined = True
            return [self._take(seq, batch)]
        self._waiting = {seq: batch}
        return self._ask(now_s)

    def _back(self, seq: int, batch: Batch, now_s: float) -> list[Action]:
        if batch.at <= self._last_at:
            return []  # seen before
        return self._restart(now_s, (seq, batch))

    def _wait(self, seq: int, batch: Batch, now_s: float) -> list[Action]:
        self._waiting[seq] = batch
        if len(self._waiting) > self._cap:
            return self._lose("too much behind a gap", now_s)
        if not self._trusted or self._next not in self._waiting:
            return []
        actions = self._drain()
        if not self._waiting:
            self.phase = Phase.LIVE  # it had merely come out of order
        return actions

    def _restart(self, now_s: float, first: tuple[int, Batch] | None = None) -> list[Action]:
        self.counts.restarts += 1
        self._next, self._last_at, self._waiting, self._trusted = 0, 0.0, {}, True
        self._joined = False
        self.phase = Phase.NEW
        forget = Forget("restart")
        if first:
            return [forget, *self._first(*first, now_s)]
        return [forget, *self._ask(now_s)] if self._can_replay else [forget]

    def _ask(self, now_s: float) -> list[Action]:
        self.phase = Phase.GAP
        self.counts.replays += 1
        self._joined = True
        self._deadline = now_s + self._patience_s
        # One batch that is known already comes along: its time stamp shows that the process is the same.
        self._ticket += 1  # what an earlier request still brings is of no use
        return [Replay(max(self._next - 1, 0), self._ticket)]

    def _lose(self, reason: str, now_s: float) -> list[Action]:
        """Forget, and go on behind the loss: from the last stretch of waiting batches that has no hole."""
        self.counts.forgotten += 1
        self.lost_at = now_s
        self._trusted = True
        self._joined = True
        numbers = sorted(self._waiting)
        if not numbers:
            self.phase = Phase.NEW
            return [Forget(reason)]
        first = numbers[-1]
        while first - 1 in self._waiting:
            first -= 1
        self.phase = Phase.LIVE
        self._next = first
        return [Forget(reason), *self._drain()]

    def _drain(self) -> list[Action]:
        events: list[KvEvent] = []
        while (batch := self._waiting.pop(self._next, None)) is not None:
            events += self._take(self._next, batch).events
        # Numbers below the next one are of no use any more.
        self._waiting = {seq: batch for seq, batch in self._waiting.items() if seq > self._next}
        return [Apply(tuple(events))] if events else []

    def _take(self, seq: int, batch: Batch) -> Apply:
        self._next, self._last_at = seq + 1, batch.at
        return Apply(batch.events)

    def _decode(self, payload: bytes) -> Batch | None:
        try:
            return self._decoder.decode(payload)
        except BadEventError:
            self.counts.bad += 1
            self._waiting = {}
            return None
