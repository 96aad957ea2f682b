"""Traffic and fleets of the routing benches."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

from gateway.replay.trace import Arrival, Trace, read_trace
from gateway.replay.world import SimPool

TRACES = Path(__file__).parents[1] / "data" / "traces"
AZURE_BLOCK_TOKENS = 64


def urls(name: str, count: int) -> tuple[str, ...]:
    """One host per replica."""
    return tuple(f"http://{name}-{number}:8000" for number in range(count))


# Eight unlike replicas with host and fs tiers.
UNLIKE = (
    SimPool("h100-fp8", "vllm", "h100-fp8", urls("h100", 3), gpus=8),
    SimPool("b300-nvfp4", "vllm", "b300-nvfp4", urls("b300", 3), gpus=4),
    SimPool("gb200-mtp", "vllm", "gb200-mtp", urls("gb200", 2), gpus=4),
)
ALIKE = (SimPool("h100-fp8", "vllm", "h100-fp8", urls("h100", 8), gpus=8),)


def mooncake(name: str) -> Trace:
    """A Mooncake trace: `conversation` or `synthetic`."""
    return read_trace(TRACES / f"mooncake_{name}.jsonl.xz")


def azure_with_prefixes(seed: int = 7) -> Trace:
    """Azure's conversations with made-up prefixes: a system prompt of one of 20 apps, then turns of one session.

    Lengths and times are the trace's own. A prompt that is longer than some open session's goes on with that session
    seven times in ten.
    """
    rng = random.Random(seed)
    trace = read_trace(TRACES / "azure_conv_2023.csv.xz")
    apps = [tuple(-(100 * app + step) - 1 for step in range(rng.randrange(2, 12))) for app in range(20)]
    weights = [1.0 / (rank + 1) for rank in range(len(apps))]
    sessions: list[tuple[int, ...]] = []
    arrivals: list[Arrival] = []
    fresh = 0
    for arrival in trace.arrivals:
        count = -(-arrival.prompt_tokens // AZURE_BLOCK_TOKENS)
        known = _session(rng, sessions, count)
        base = rng.choices(apps, weights)[0][:count] if known is None else sessions.pop(known)
        blocks = (*base, *range(fresh, fresh + count - len(base)))
        fresh += count - len(base)
        sessions.append(blocks)
        del sessions[: max(0, len(sessions) - 400)]
        arrivals.append(replace(arrival, blocks=blocks))
    return Trace("azure_conv_2023 with prefixes", tuple(arrivals), AZURE_BLOCK_TOKENS)


def _session(rng: random.Random, sessions: list[tuple[int, ...]], count: int) -> int | None:
    """A session that this prompt can go on with: shorter, by little when possible."""
    if rng.random() > 0.7:
        return None
    fitting = [(count - len(blocks), place) for place, blocks in enumerate(sessions) if len(blocks) < count]
    return min(fitting)[1] if fitting else None


def hot_spot(requests: int, seconds: float, seed: int = 3) -> Trace:
    """One shared prefix of 30 K tokens, some hundred tokens of one's own, all within `seconds`."""
    rng = random.Random(seed)
    shared = tuple(range(59))
    times = sorted(rng.uniform(0, seconds) for _ in range(requests))
    return Trace(
        "hot spot",
        tuple(
            Arrival(at, 59 * 512 + rng.randrange(600, 1000), rng.randrange(50, 400), (*shared, 1000 + number))
            for number, at in enumerate(times)
        ),
    )


def conversations(requests: int, seconds: float, seed: int = 5) -> Trace:
    """Agents at work: few system prompts of 2 to 6 blocks, sessions of some ten turns that each add 1 to 4 blocks."""
    rng = random.Random(seed)
    systems = [tuple(1000 * app + step for step in range(rng.randrange(2, 7))) for app in range(4)]
    arrivals: list[Arrival] = []
    fresh = 10_000
    while len(arrivals) < requests:
        blocks, at = rng.choice(systems), rng.uniform(-0.5, 1.0) * seconds
        for _ in range(rng.randrange(4, 14)):
            grown = rng.randrange(1, 5)
            blocks, fresh = (*blocks, *range(fresh, fresh + grown)), fresh + grown
            if 0.0 <= at < seconds:
                arrivals.append(Arrival(at, 512 * len(blocks) - rng.randrange(64), rng.randrange(8, 64), blocks))
            at += rng.uniform(0.02, 0.10) * seconds
    arrivals.sort(key=lambda arrival: arrival.at_s)
    return Trace("conversations", tuple(arrivals[:requests]))
