"""A pure model of one engine replica under a virtual clock: no sockets, no wall clock, no randomness.

    engine = Engine(load_profile("h200", "vllm"), VLLM)
    engine.submit(SimRequest("a", prompt_tokens=8192, output_tokens=64, blocks=chain), now=0.0)
    while (at := engine.next_event_time()) < math.inf:
        for progress in engine.advance(at):
            ...  # first tokens and ends; every token when the engine was made with tokens=True

`submit`, `abort` and `advance` want `now` in seconds, never going back. Equal calls give equal results.
"""

from __future__ import annotations

import heapq
import math
from bisect import insort
from dataclasses import dataclass
from operator import attrgetter

from backends.profiles import Profile
from backends.simulator.kvcache import FsStore
from backends.simulator.requests import Cached, FinishReason, KvEvent, Progress, QueueFullError, SimRequest
from backends.simulator.tiers import KvTiers
from backends.simulator.timing import DecodeRun, Hold, PrefillStep, Run, prefill_cost

Action = Hold | PrefillStep | DecodeRun

_queue_key = attrgetter("queue_key")


@dataclass(frozen=True, slots=True)
class Scheduling:
    """How an engine kind orders its work."""

    prefill_first: bool  # whole prompts before any decode step, instead of both in one step
    whole_prompt_hits: bool  # with tiers a full hit covers the last block too


VLLM = Scheduling(prefill_first=False, whole_prompt_hits=True)
SGLANG = Scheduling(prefill_first=True, whole_prompt_hits=False)


@dataclass(frozen=True, slots=True)
class EngineState:
    """What an engine knows of itself, exact."""

    running: int  # requests in the batch
    waiting: int  # requests without a place in it, restores included
    waiting_uncached_tokens: int
    used_tokens: int
    capacity_tokens: int
    context_tokens: int  # in the decode batch
    steps: int  # decode steps since the start, counted once for each stream in them


class Engine:
    """One replica. Give the replicas of one host the same `fs`, so that they share its files and its disk."""

    def __init__(
        self,
        profile: Profile,
        scheduling: Scheduling,
        *,
        fs: FsStore | None = None,
        tokens: bool = False,
        events: bool = False,
        max_queued: int | None = None,
    ) -> None:
        self.profile = profile
        self.tiers = KvTiers(profile, whole_prompt_hits=scheduling.whole_prompt_hits, fs=fs, events=events)
        self._scheduling = scheduling
        self._tokens = tokens
        self._max_queued = max_queued
        self._runs: dict[str, Run] = {}
        self._inbox: list[tuple[float, int, Run]] = []  # heap by arrival at the scheduler
        self._loads: list[tuple[float, int, bool, Run]] = []  # heap by end; True while reading, False while copying
        self._waiting: list[Run] = []  # sorted by queue_key
        self._prefilling: list[Run] = []
        self._decoding: list[Run] = []
        self._context = 0  # tokens in the decode batch
        self._steps = 0  # decode steps, once for each stream
        self._action: Action | None = None
        self._front_free_at = 0.0
        self._hold_until = 0.0  # the scheduler loop stands still
        self._reading = 0  # restores from files under way
        self._count = 0

    # -- what goes in ------------------------------------------------------------------------------------------------

    def submit(self, request: SimRequest, now: float) -> None:
        """Take a request in. Raises QueueFullError, and ValueError for an id in use or a prompt that never fits."""
        if request.id in self._runs:
            raise ValueError(f"request id {request.id!r} is in use")
        if self.tiers.slots(request) > self.tiers.pool.capacity:
            raise ValueError(f"{request.prompt_tokens} + {request.output_tokens} tokens never fit the KV cache")
        if self._max_queued is not None and self.state().waiting >= self._max_queued:
            raise QueueFullError
        self._count += 1
        run = Run(request, self._count, self.tiers.located(request))
        run.cost_s = self.profile.prefill_s(run.cached.total, request.prompt_tokens)
        self._runs[request.id] = run
        fixed = self.profile.front_end_s(0)
        own = self.profile.front_end_s(request.prompt_tokens) - fixed - self.profile.intake_s(request.prompt_tokens)
        self._front_free_at = max(now, self._front_free_at) + max(own, 0.0)
        heapq.heappush(self._inbox, (self._front_free_at + fixed, run.order, run))
        self._replan(self._front_free_at + fixed)

    def abort(self, request_id: str, now: float) -> bool:
        """Drop a request; its blocks are free at the next step boundary. False when it is not here (any more)."""
        run = self._runs.pop(request_id, None)
        if run is None:
            return False
        run.aborted = True
        if self._action is None:
            self._reap()
        else:
            self._replan(now)
        return True

    def reset_cache(self, *, lower_tiers: bool) -> None:
        """Forget idle GPU blocks, and with `lower_tiers` host memory. Files stay, as with real engines."""
        self.tiers.reset(lower_tiers=lower_tiers)

    # -- what comes out ----------------------------------------------------------------------------------------------

    def next_event_time(self) -> float:
        """When `advance` next has something to report or to do; infinity when idle."""
        action = self._action
        if action is None:
            return self._next_arrival()
        if self._tokens and isinstance(action, DecodeRun):
            return action.at(min(action.emitted + 1, action.planned))
        return action.end

    def advance(self, now: float) -> list[Progress]:
        """Simulate up to `now`: first tokens and ends in time order and, with `tokens`, all tokens in between."""
        out: list[Progress] = []
        while (boundary := self._next_arrival() if self._action is None else self._action.end) <= now:
            if self._action is not None:
                self._finish(self._action, out)
            self._settle(boundary)
            self._action = self._next_action(boundary)
        if self._tokens and isinstance(self._action, DecodeRun):
            self._report(self._action, self._action.done_by(now), out)
        return out

    def take_events(self) -> list[KvEvent]:
        """KV events since the last call; always empty unless made with events=True."""
        return self.tiers.take_events()

    # -- what can be read --------------------------------------------------------------------------------------------

    def located(self, request: SimRequest) -> Cached:
        """Prompt tokens per tier, as admission would find them right now."""
        return self.tiers.located(request)

    def state(self) -> EngineState:
        """Counts at the last `advance`, aborted requests left out."""
        running = sum(not run.aborted for run in self._prefilling) + sum(not run.aborted for run in self._decoding)
        size = self.profile.block_tokens
        return EngineState(
            running=running,
            waiting=len(self._runs) - running,
            waiting_uncached_tokens=sum(
                run.request.prompt_tokens - max(run.cached.total, run.computed)
                for run in self._runs.values()
                if not run.produced
            ),
            used_tokens=self.tiers.pool.in_use * size,
            capacity_tokens=self.tiers.pool.capacity * size,
            context_tokens=self._context,
            steps=self._steps,
        )

    def estimate_ttft_s(self, request: SimRequest, now: float) -> float:
        """Seconds until this request would give its first token if it were submitted now.

        Reads the exact caches, the action under way, the queue's prefill work and the tiers' FIFOs; what later
        steps will share with each other is not played forward.
        """
        profile, found = self.profile, self.tiers.located(request)
        ready = max(now, self._front_free_at) + profile.front_end_s(request.prompt_tokens)
        if found.fs and self.tiers.fs is not None:
            ready = max(ready, self.tiers.fs.read_free_at) + self.tiers.read_s(found)
        if found.host or found.fs:
            ready = max(ready, self.tiers.link_free_at) + self.tiers.copy_s(found)
        busy = self._action.end if isinstance(self._action, PrefillStep) else now
        queued = sum(run.cost_s for run in self._runs.values() if not run.produced)
        left = request.prompt_tokens - found.total
        steps = max(math.ceil(left / profile.max_step_tokens), 1)
        step_s = profile.prefill_step_s
        if self._decoding and not self._scheduling.prefill_first:
            step_s += profile.decode_s(len(self._decoding), self._context)
        own = steps * step_s + profile.prefill_s(found.total, request.prompt_tokens)
        if left and self.tiers.host is not None:
            own += profile.write_through_s + profile.write_through_per_token_s * left
        return max(max(busy, self._hold_until) + queued, ready) - now + own

    # -- boundaries --------------------------------------------------------------------------------------------------

    def _next_arrival(self) -> float:
        inbox = self._inbox[0][0] if self._inbox else math.inf
        return min(inbox, self._loads[0][0]) if self._loads else inbox

    def _replan(self, at: float) -> None:
        if isinstance(self._action, DecodeRun):
            self._action.cut(at)

    def _settle(self, now: float) -> None:
        """Take in all that has arrived by `now`: files written, reads and copies done, requests."""
        self.tiers.settle(now)
        while self._loads and self._loads[0][0] <= now:
            at, _, reading, run = heapq.heappop(self._loads)
            if reading:
                self._copy(run, at)
            else:
                self._reading -= bool(run.cached.fs)
                self.tiers.restored(run)
                run.loaded = True
                insort(self._waiting, run, key=_queue_key)
        while self._inbox and self._inbox[0][0] <= now:
            run = heapq.heappop(self._inbox)[2]
            intake = self.profile.intake_s(run.request.prompt_tokens)
            if run.known or not intake:
                insort(self._waiting, run, key=_queue_key)
                continue
            run.known = True
            self._hold_until = max(self._hold_until, now) + intake
            # Just after the hold, so that running streams get a step in between.
            heapq.heappush(self._inbox, (math.nextafter(self._hold_until, math.inf), run.order, run))
        self._reap()

    def _reap(self) -> None:
        """Let go of aborted runs wherever they are, but for restores under way: their blocks are being written."""
        gone = [run for run in (*self._waiting, *self._prefilling, *self._decoding) if run.aborted]
        if not gone:
            return
        for run in gone:
            self.tiers.release(run, with_answer=False)
            if run.produced:
                self._context -= run.request.prompt_tokens + run.tokens_after(0, self.profile.tokens_per_step)
        self._waiting = [run for run in self._waiting if not run.aborted]
        self._prefilling = [run for run in self._prefilling if not run.aborted]
        self._decoding = [run for run in self._decoding if not run.aborted]

    # -- admission and restores --------------------------------------------------------------------------------------

    def _admit(self, now: float, budget: int) -> None:
        """Move runs from the queue into the batch while slots, blocks and this step's token budget last."""
        while self._waiting and budget > 0:
            run = self._waiting[0]
            if len(self._prefilling) + len(self._decoding) >= self.profile.max_batch:
                return
            if not run.loaded and not self.tiers.admit(run):
                return
            del self._waiting[0]
            if not run.loaded and run.cached.total > run.cached.gpu:
                self._restore(run, now)
            else:
                self._prefilling.append(run)
                budget -= run.request.prompt_tokens - run.computed

    def _restore(self, run: Run, now: float) -> None:
        if not run.cached.fs:
            self._copy(run, now)
            return
        self._reading += 1
        heapq.heappush(self._loads, (self.tiers.begin_read(run.cached, now), run.order, True, run))

    def _copy(self, run: Run, now: float) -> None:
        hold, done = self.tiers.begin_copy(run.cached, now)
        self._hold_until = max(self._hold_until, hold)
        heapq.heappush(self._loads, (done, run.order, False, run))

    # -- steps -------------------------------------------------------------------------------------------------------

    def _next_action(self, start: float) -> Action | None:
        if self._hold_until > start:
            return Hold(self._hold_until)
        mixed = not self._scheduling.prefill_first
        budget = self.profile.max_step_tokens - (len(self._decoding) if mixed else 0)
        self._admit(start, budget - sum(run.request.prompt_tokens - run.computed for run in self._prefilling))
        if self._hold_until > start:
            return Hold(self._hold_until)
        if self._prefilling:
            return self._prefill_step(start, budget, self._decoding if mixed else [])
        return self._decode_run(start) if self._decoding else None

    def _prefill_step(self, start: float, budget: int, streams: list[Run]) -> PrefillStep:
        parts: list[tuple[Run, int]] = []
        for run in self._prefilling:
            chunk = min(run.request.prompt_tokens - run.computed, budget)
            if chunk > 0 or run.computed == run.request.prompt_tokens:
                parts.append((run, run.computed + chunk))
                budget -= chunk
        through = self.tiers.host is not None
        return PrefillStep(
            start, start + prefill_cost(self.profile, parts, len(streams), self._context, through), parts, list(streams)
        )

    def _decode_run(self, start: float) -> DecodeRun:
        profile, count = self.profile, len(self._decoding)
        drag = 1.0 + (profile.fs.drag if profile.fs is not None and self._reading else 0.0)
        run = DecodeRun(
            start,
            first_s=drag * profile.decode_s(count, self._context),
            growth_s=drag * profile.decode_per_token_s * profile.tokens_per_step * count,
            streams=list(self._decoding),
            planned=min(run.steps_left(profile.tokens_per_step) for run in self._decoding),
        )
        run.cut(self._next_arrival())
        return run

    def _finish(self, action: Action, out: list[Progress]) -> None:
        self._action = None
        if isinstance(action, DecodeRun):
            self._report(action, action.planned, out)
            self._step(action.streams, action.planned, action.end, out)
        elif isinstance(action, PrefillStep):
            self._step(action.streams, 1, action.end, out)
            for run, upto in action.parts:
                if not run.aborted:
                    self._prefilled(run, upto, action.end, out)

    def _prefilled(self, run: Run, upto: int, now: float, out: list[Progress]) -> None:
        self.tiers.computed(run, upto, now)
        run.cost_s = self.profile.prefill_s(upto, run.request.prompt_tokens)
        if upto < run.request.prompt_tokens:
            return
        self._prefilling.remove(run)
        run.produced = 1
        progress = Progress(run.request, 1, now, first=True, cached=run.cached)
        out.append(progress)
        if run.request.output_tokens <= 1:
            self._end(run, progress)
        else:
            self._decoding.append(run)
            self._context += run.request.prompt_tokens + 1

    def _step(self, streams: list[Run], steps: int, now: float, out: list[Progress]) -> None:
        """Let each stream take `steps` decode steps that end at `now`; those with all their tokens end."""
        rate = self.profile.tokens_per_step
        ended = []
        self._steps += steps * len(streams)
        for run in streams:
            before, after = run.tokens_after(0, rate), run.tokens_after(steps, rate)
            self._context += after - before
            run.stepped += steps
            ends = after >= run.request.output_tokens and not run.aborted
            if (ends or self._tokens) and not run.aborted and (ends or after > run.produced):
                progress = Progress(run.request, after - run.produced, now, cached=run.cached)
                run.produced = after
                out.append(progress)
            if ends:
                ended.append((run, progress))
        for run, progress in ended:
            self._decoding.remove(run)
            self._context -= run.request.prompt_tokens + run.request.output_tokens
            self._end(run, progress)

    def _report(self, action: DecodeRun, steps: int, out: list[Progress]) -> None:
        """Report the tokens of a run's first `steps` steps that were not reported yet, without ending anything."""
        if steps <= action.emitted or not self._tokens:
            return
        action.emitted = steps
        at = action.at(steps)
        for run in action.streams:
            made = min(run.tokens_after(steps, self.profile.tokens_per_step), run.request.output_tokens - 1)
            if made > run.produced and not run.aborted:
                out.append(Progress(run.request, made - run.produced, at, cached=run.cached))
                run.produced = made

    def _end(self, run: Run, progress: Progress, reason: FinishReason = "length") -> None:
        progress.finish = reason
        self.tiers.release(run, with_answer=True)
        del self._runs[run.request.id]
