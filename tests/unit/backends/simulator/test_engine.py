"""The pure engine: queue, batch, caches, tiers, aborts, time."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import pytest

from backends.profiles import Profile, load_profile
from backends.simulator.engine import SGLANG, VLLM, Engine, Scheduling
from backends.simulator.kvcache import FsStore
from backends.simulator.requests import Cached, Cleared, Progress, QueueFullError, Removed, SimRequest, Stored
from tests.unit.backends.simulator.measure import advance_to, chain, drain

PLAIN = load_profile("h200", "vllm").without_tiers()
TIERED = load_profile("h200", "vllm")
BOTH = pytest.mark.parametrize("scheduling", [VLLM, SGLANG])


def request(name: str, prompt: int = 1024, output: int = 8, tag: str | None = None, block: int = 16) -> SimRequest:
    return SimRequest(name, prompt, output, chain(prompt, block, tag or name))


def ends(progress: list[Progress]) -> dict[str, float]:
    return {p.request.id: p.at_s for p in progress if p.finish is not None}


def firsts(progress: list[Progress]) -> dict[str, float]:
    return {p.request.id: p.at_s for p in progress if p.first}


def small(profile: Profile, blocks: int) -> Profile:
    return replace(profile, gpu_cache_tokens=blocks * profile.block_tokens)


@BOTH
def test_every_token_is_reported_once(scheduling: Scheduling) -> None:
    for tokens in (False, True):
        engine = Engine(PLAIN, scheduling, tokens=tokens)
        for i in range(20):
            engine.submit(request(str(i), prompt=100 + 777 * i, output=1 + 13 * i), now=0.01 * i)
        made = dict.fromkeys(map(str, range(20)), 0)
        progress = drain(engine)
        for p in progress:
            made[p.request.id] += p.tokens
        assert made == {str(i): 1 + 13 * i for i in range(20)}
        assert sorted(ends(progress)) == sorted(made)
        state = engine.state()
        assert (state.running, state.waiting, state.used_tokens, state.context_tokens) == (0, 0, 0, 0)


@BOTH
def test_coarse_and_fine_reports_tell_the_same_times(scheduling: Scheduling) -> None:
    seen = []
    for tokens in (False, True):
        engine = Engine(TIERED, scheduling, tokens=tokens)
        progress: list[Progress] = []
        for i in range(30):
            progress += advance_to(engine, 0.05 * i)
            engine.submit(request(str(i), 400 * (i % 7) + 50, 40, tag=str(i % 3)), now=0.05 * i)
        progress += drain(engine)
        seen.append((firsts(progress), ends(progress)))
    for coarse, fine in zip(*seen, strict=True):
        assert coarse == pytest.approx(fine)


def test_time_of_advance_does_not_matter() -> None:
    """Looking often or seldom gives the same run."""
    results = []
    for step in (0.001, 0.013, 5.0):
        engine = Engine(TIERED, VLLM, tokens=True)
        progress: list[Progress] = []
        for i in range(10):
            engine.submit(request(str(i), 3000, 60), now=0.0)
        now = 0.0
        while engine.next_event_time() < math.inf:
            now += step
            progress += engine.advance(now)
        results.append(ends(progress))
    assert results[0] == pytest.approx(results[1])
    assert results[0] == pytest.approx(results[2])


def test_a_second_turn_hits_the_first_and_its_answer() -> None:
    engine = Engine(PLAIN, VLLM)
    turns = chain(4096, 16)
    engine.submit(SimRequest("a", 1600, 33, turns[: 1632 // 16]), 0.0)
    drain(engine)
    engine.submit(SimRequest("b", 1700, 1, turns[: 1700 // 16]), 10.0)
    cached = next(p.cached for p in drain(engine) if p.first)
    assert cached == Cached(gpu=1632)


def test_a_full_hit_leaves_a_block_to_compute_without_tiers() -> None:
    for profile, want in ((PLAIN, 1008), (TIERED, 1024)):
        engine = Engine(profile, VLLM)
        engine.submit(request("a"), 0.0)
        drain(engine)
        assert engine.located(request("b", tag="a")).total == want


def test_least_recently_used_blocks_go_first_and_tails_before_heads() -> None:
    engine = Engine(small(PLAIN, 200), VLLM, events=True)
    for i, name in enumerate(("a", "b", "a2")):
        engine.submit(request(name, prompt=1024, output=1, tag=name[0]), float(i))
        drain(engine)
    engine.take_events()
    engine.submit(request("c", prompt=2048, output=1), 10.0)
    drain(engine)
    removed = [block for event in engine.take_events() if isinstance(event, Removed) for block in event.blocks]
    assert removed[:3] == [("b", 63), ("b", 62), ("b", 61)]
    assert set(removed) <= {("b", i) for i in range(64)} | {("a", i) for i in range(64)}


def test_evicted_blocks_come_back_from_the_host_tier() -> None:
    engine = Engine(small(TIERED, 100), VLLM)
    for i, name in enumerate("abca"):
        engine.submit(request(f"{name}{i}", tag=name), 10.0 * i)
        progress = drain(engine)
    cached = next(p.cached for p in progress if p.first)
    assert cached.gpu == 0
    assert cached.host == 1024


def test_replicas_of_one_host_share_files_and_their_queue() -> None:
    assert TIERED.fs is not None
    disk = FsStore(TIERED.fs, TIERED.block_tokens)
    one, two, three = (Engine(TIERED, VLLM, fs=disk) for _ in range(3))
    one.submit(request("a", 16_384), 0.0)
    drain(one)
    one.advance(100.0)
    one.submit(request("tick", 16), 100.0)  # a step, in which the writes are seen to be done
    drain(one)
    times = []
    for engine in (two, three):
        engine.submit(request("b", 16_384, tag="a"), 200.0)
        progress = drain(engine)
        assert next(p.cached for p in progress if p.first) == Cached(fs=16_384)
        times.append(firsts(progress)["b"] - 200.0)
    read = 16_384 * TIERED.fs.bytes_per_token / TIERED.fs.bytes_per_s
    assert times[0] > read
    assert times[1] > 2 * read


def test_a_request_can_refuse_lower_tiers() -> None:
    engine = Engine(TIERED, VLLM)
    engine.submit(request("a"), 0.0)
    drain(engine)
    engine.reset_cache(lower_tiers=False)
    asked = request("b", tag="a")
    assert engine.located(asked) == Cached(host=1024)
    assert engine.located(replace(asked, load_from=frozenset())) == Cached()
    engine.reset_cache(lower_tiers=True)
    assert engine.located(replace(asked, load_from=frozenset({"host"}))) == Cached()


@BOTH
def test_queue_limit(scheduling: Scheduling) -> None:
    engine = Engine(replace(PLAIN, max_batch=1), scheduling, max_queued=2)
    engine.submit(request("a", output=1000), 0.0)
    engine.advance(0.5)
    engine.submit(request("b"), 0.5)
    engine.submit(request("c"), 0.5)
    with pytest.raises(QueueFullError):
        engine.submit(request("d"), 0.5)
    assert (engine.state().running, engine.state().waiting) == (1, 2)
    assert engine.abort("b", 0.6)
    engine.submit(request("d"), 0.6)
    assert list(ends(drain(engine))) == ["a", "c", "d"]


def test_priority_goes_before_arrival() -> None:
    engine = Engine(replace(PLAIN, max_batch=1), VLLM)
    engine.submit(request("first", output=500), 0.0)
    engine.advance(0.5)
    engine.submit(request("late"), 0.5)
    engine.submit(replace(request("urgent"), priority=-1), 0.5)
    assert list(ends(drain(engine))) == ["first", "urgent", "late"]


def test_what_never_fits_is_refused() -> None:
    engine = Engine(small(PLAIN, 10), VLLM)
    with pytest.raises(ValueError, match="never fit"):
        engine.submit(request("a", 161), 0.0)
    engine.submit(request("b", 100), 0.0)
    with pytest.raises(ValueError, match="in use"):
        engine.submit(request("b", 100), 0.0)


@BOTH
@pytest.mark.parametrize("when", [0.001, 0.02, 0.2, 0.24, 0.5])
def test_an_abort_at_any_moment_frees_everything(scheduling: Scheduling, when: float) -> None:
    engine = Engine(TIERED, scheduling, tokens=True)
    engine.submit(request("stays", 128, 300), 0.0)
    engine.submit(request("goes", 8192, 300), 0.0)
    advance_to(engine, when)
    assert engine.abort("goes", when)
    assert not engine.abort("goes", when)
    progress = drain(engine)
    assert list(ends(progress)) == ["stays"]
    assert all(p.request.id != "goes" for p in progress)
    assert engine.state().used_tokens == engine.state().context_tokens == 0


def test_an_abort_during_a_restore_frees_everything() -> None:
    engine = Engine(TIERED, VLLM)
    engine.submit(request("a", 32_768), 0.0)
    drain(engine)
    engine.reset_cache(lower_tiers=False)
    engine.submit(request("b", 32_768, tag="a"), 100.0)
    engine.advance(100.1)
    assert engine.state().used_tokens > 0
    assert engine.abort("b", 100.1)
    drain(engine)
    assert engine.state().used_tokens == 0


def test_prefill_first_holds_running_streams_and_chunks_do_not() -> None:
    longest = {}
    for name, scheduling in (("mixed", VLLM), ("first", SGLANG)):
        engine = Engine(PLAIN, scheduling, tokens=True)
        engine.submit(request("stream", 128, 2000), 0.0)
        progress = advance_to(engine, 1.0)
        engine.submit(request("long", 32_768), 1.0)
        progress += advance_to(engine, 4.0)
        times = [p.at_s for p in progress if p.request.id == "stream"]
        longest[name] = max(b - a for a, b in itertools.pairwise(times))
    assert longest["first"] > 2 * longest["mixed"]


def test_accepted_drafts_make_tokens_come_faster() -> None:
    slow, fast = (Engine(replace(PLAIN, tokens_per_step=rate), VLLM, tokens=True) for rate in (1.0, 2.4))
    for engine in (slow, fast):
        engine.submit(request("a", output=241), 0.0)
    took = [ends(progress)["a"] - firsts(progress)["a"] for progress in (drain(slow), drain(fast))]
    assert took[0] / took[1] == pytest.approx(2.4, rel=0.02)


def test_events_tell_what_is_where() -> None:
    engine = Engine(small(TIERED, 100), VLLM, events=True)
    for i, name in enumerate("abab"):
        engine.submit(request(f"{name}{i}", tag=name), 10.0 * i)
        drain(engine)
    there: dict[str, set[object]] = {"gpu": set(), "host": set(), "fs": set()}
    for event in engine.take_events():
        if isinstance(event, Stored):
            assert event.parent is None or event.parent[0] == event.blocks[0][0]
            there[event.tier] |= set(event.blocks)
        elif isinstance(event, Removed):
            there[event.tier] -= set(event.blocks)
    assert engine.tiers.host is not None
    assert there["gpu"] == set(engine.tiers.pool.blocks())
    assert there["host"] == set(engine.tiers.host.blocks())
    assert there["fs"]
    engine.reset_cache(lower_tiers=False)
    assert engine.take_events() == [Cleared()]
    assert engine.take_events() == []


@BOTH
def test_the_estimate_is_what_then_happens(scheduling: Scheduling) -> None:
    """For an idle replica within 10 %, whatever the tier; behind a queue within 25 %."""
    for tier in ("cold", "gpu", "host", "fs"):
        engine = Engine(TIERED, scheduling)
        if tier != "cold":
            engine.submit(request("a", 16_384), 0.0)
            drain(engine)
            engine.advance(100.0)
            engine.submit(request("tick", 16), 100.0)
            drain(engine)
        if tier in ("host", "fs"):
            engine.reset_cache(lower_tiers=tier == "fs")
        asked = request("b", 16_384, tag="a")
        guess = engine.estimate_ttft_s(asked, 200.0)
        engine.submit(asked, 200.0)
        assert firsts(drain(engine))["b"] - 200.0 == pytest.approx(guess, rel=0.10), tier
    engine = Engine(TIERED, scheduling)
    for i in range(5):
        engine.submit(request(f"queued{i}", 8192), 0.0)
    asked = request("z", 4096)
    guess = engine.estimate_ttft_s(asked, 0.0)
    engine.submit(asked, 0.0)
    assert firsts(drain(engine))["z"] == pytest.approx(guess, rel=0.25)
