"""The KV side of one replica: lookup, slots, restores through host and fs, write-through, events. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from backends.contracts import Tier
from backends.profiles import Profile
from backends.simulator.kvcache import Block, BlockPool, FsStore, LruStore
from backends.simulator.requests import Cached, Cleared, KvEvent, Removed, SimRequest, Stored
from backends.simulator.timing import Run


@dataclass(slots=True)
class Copied:
    """Totals of the copies out of one tier, as an engine times them: from the first byte to the last, no waiting."""

    count: int = 0
    tokens: int = 0
    seconds: float = 0.0

    def add(self, tokens: int, each_s: float) -> None:
        """One more copy, of `each_s` seconds per token."""
        self.count += 1
        self.tokens += tokens
        self.seconds += tokens * each_s


class KvTiers:
    """All tiers of one replica. `pool`, `host` and `fs` may be read by anybody, and are changed only here."""

    def __init__(self, profile: Profile, *, whole_prompt_hits: bool, fs: FsStore | None, events: bool) -> None:
        size = profile.block_tokens
        self.pool = BlockPool(profile.gpu_cache_tokens // size)
        self.host = LruStore(profile.host.capacity_tokens // size) if profile.host else None
        self.fs = fs or (FsStore(profile.fs, size) if profile.fs else None)
        self.link_free_at = 0.0  # the host-to-GPU copies' FIFO
        self.loaded = Copied()  # from host memory to the GPU
        self.read = Copied()  # from files to host memory
        self._profile = profile
        self._size = size
        self._whole_prompt_hits = whole_prompt_hits and self.host is not None
        self._log: list[KvEvent] | None = [] if events else None

    def slots(self, request: SimRequest) -> int:
        """Blocks that a request holds from admission to its end."""
        return -(-(request.prompt_tokens + request.output_tokens) // self._size)

    def located(self, request: SimRequest) -> Cached:
        """Tokens of the prompt per tier, as an admission right now would find them."""
        usable = self._usable(request)
        gpu = self.pool.match(usable)
        host = fs = 0
        for block in usable[gpu:]:
            if self.host is not None and "host" in request.load_from and block in self.host:
                host += 1
            elif self.fs is not None and "fs" in request.load_from and block in self.fs.contents:
                fs += 1
            else:
                break
        return Cached(gpu * self._size, host * self._size, fs * self._size)

    def admit(self, run: Run) -> bool:
        """Give a run its slots and pin what the GPU has of it; False when it does not fit now."""
        found = self.located(run.request)
        matched = run.request.blocks[: found.gpu // self._size]
        new = self.slots(run.request) - len(matched)
        if not self.pool.fits(matched, new):
            return False
        self._removed("gpu", self.pool.take(matched, new))
        run.pinned = list(matched)
        run.unnamed = new
        run.cached = found
        run.computed = found.gpu
        return True

    def read_s(self, found: Cached) -> float:
        """Seconds of reading files for this hit, without queueing."""
        return self.fs.read_s(found.fs) if self.fs is not None and found.fs else 0.0

    def copy_s(self, found: Cached) -> float:
        """Seconds of the host-to-GPU copy for this hit, without queueing."""
        host = self._profile.host
        tokens = found.host + found.fs
        if host is None or not tokens:
            return 0.0
        return max(host.floor_s, tokens * host.bytes_per_token / host.bytes_per_s - host.overlap_s)

    def begin_read(self, found: Cached, now: float) -> float:
        """Queue the files of a hit; returns when they are in host memory."""
        if self.fs is None or not found.fs:
            return now
        self.read.add(found.fs, self.fs.tier.bytes_per_token / self.fs.tier.bytes_per_s)
        return self.fs.read(found.fs, now)

    def begin_copy(self, found: Cached, now: float) -> tuple[float, float]:
        """Queue the copy of a hit; returns (until when it holds the scheduler loop, when it is done)."""
        start = max(now, self.link_free_at)
        took = self.copy_s(found)
        self.link_free_at = start + took
        free = 0.0
        if (host := self._profile.host) is not None:
            self.loaded.add(found.host + found.fs, host.bytes_per_token / host.bytes_per_s)
            free = host.free_s
        return start + max(took - free, 0.0), self.link_free_at

    def restored(self, run: Run) -> None:
        """The copy of a run's hit is done: its blocks are on the GPU, and the newest in host memory."""
        first = run.computed // self._size
        last = run.cached.total // self._size
        self._name(run, first, last)
        self._into_host(run.request, first, last)
        run.computed = run.cached.total

    def computed(self, run: Run, upto: int, now: float) -> None:
        """Prefill reached `upto` tokens: cache the blocks that are full now and store them through."""
        first, last = run.computed // self._size, upto // self._size
        run.computed = upto
        self._name(run, first, last)
        self._into_host(run.request, first, last)
        blocks = run.request.blocks[first:last]
        if self.fs is not None and blocks:
            self.fs.write(blocks, run.request.blocks[first - 1] if first else None, self._size, now)

    def release(self, run: Run, *, with_answer: bool) -> None:
        """End of a run. With `with_answer` the full blocks of its answer become cached."""
        if with_answer:
            upto = run.request.prompt_tokens + run.produced - 1
            self._name(run, run.request.prompt_tokens // self._size, upto // self._size)
        self.pool.release(run.pinned, run.unnamed)
        run.pinned = []
        run.unnamed = 0

    def settle(self, now: float) -> None:
        """Make files visible whose writing is over."""
        if self.fs is None:
            return
        for block, parent in self.fs.settle(now):
            self._record(Stored("fs", (block,), parent))

    def reset(self, *, lower_tiers: bool) -> None:
        """Forget idle GPU blocks, and with `lower_tiers` host memory. Files stay."""
        self.pool.clear()
        if lower_tiers and self.host is not None:
            self.host.clear()
        self._record(Cleared())

    def take_events(self) -> list[KvEvent]:
        """KV events since the last call."""
        if not self._log:
            return []
        taken, self._log = self._log, []
        return taken

    def _usable(self, request: SimRequest) -> Sequence[Block]:
        """Blocks of the prompt that may hit: an engine computes at least the last token."""
        tokens = request.prompt_tokens if self._whole_prompt_hits else request.prompt_tokens - 1
        return request.blocks[: tokens // self._size]

    def _name(self, run: Run, first: int, last: int) -> None:
        new: list[Block] = []
        blocks = run.request.blocks[first:last]
        for at, block in enumerate(blocks, first):
            if self.pool.name(block):
                new.append(block)
            elif new:
                self._stored("gpu", run.request, at - len(new), at)
                new = []
        if new:
            self._stored("gpu", run.request, first + len(blocks) - len(new), first + len(blocks))
        run.pinned.extend(blocks)
        run.unnamed -= len(blocks)

    def _into_host(self, request: SimRequest, first: int, last: int) -> None:
        if self.host is None:
            return
        for at, block in enumerate(request.blocks[first:last], first):
            known = block in self.host
            self._removed("host", self.host.put(block))
            if not known:
                self._stored("host", request, at, at + 1)

    def _stored(self, tier: Tier, request: SimRequest, first: int, last: int) -> None:
        if self._log is None:
            return
        parent = request.blocks[first - 1] if first else None
        tokens = request.tokens[first * self._size : last * self._size]
        self._log.append(Stored(tier, request.blocks[first:last], parent, tokens, request.salt))

    def _removed(self, tier: Tier, blocks: Iterable[Block]) -> None:
        if self._log is not None:
            self._log.extend(Removed(tier, (block,)) for block in blocks)

    def _record(self, event: KvEvent) -> None:
        if self._log is not None:
            self._log.append(event)
