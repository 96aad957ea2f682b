"""Routing policies against each other and against an oracle, in virtual time, on public traces.

    python -m tests.bench.bench_routing [study|order|hot|decide ...]

Every check prints its figures and whether they hold; the last line is PASS or FAIL with how many did.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from backends.contracts import TIERS, FleetSnapshot, LoadTable, Replica, ReplicaState
from backends.located import Located
from gateway.replay.report import Result, summarise
from gateway.replay.simulation import Outcome, Simulation
from gateway.replay.study import facts_of
from gateway.replay.trace import Trace
from gateway.replay.world import SimPool, VirtualClock, World
from policies.cost_model.model import CostModel
from policies.routing.builtin import builtin_policies
from policies.routing.request import PoolShare, RouteRequest
from policies.routing.router import Router
from tests.bench.oracle import add_oracle
from tests.bench.routing_traffic import ALIKE, UNLIKE, azure_with_prefixes, hot_spot, mooncake

POLICIES = ("round_robin", "prefix_text", "latency", "oracle")
LOADS = (0.60, 0.85, 1.00)
DECIDE_LIMITS_US = {64: 120.0, 500: 600.0}
DECIDE_ROUNDS, DECISIONS = 20, 200
BLOCKS, BLOCK_TOKENS = 2048, 16


@dataclass(frozen=True, slots=True)
class Run:
    """One trace under one policy."""

    result: Result
    outcomes: list[Outcome]
    world: World


class Checks:
    """Prints what each check found and remembers which did not hold."""

    def __init__(self) -> None:
        self.done = 0
        self.missed: list[str] = []

    def __call__(self, name: str, passed: bool, figures: str) -> None:
        self.done += 1
        if not passed:
            self.missed.append(name)
        print(f"  {'ok    ' if passed else 'MISSED'} {name}: {figures}", flush=True)

    def verdict(self) -> str:
        """The last line of a run."""
        missed = f"; missed: {', '.join(self.missed)}" if self.missed else ""
        held = f"{self.done - len(self.missed)} of {self.done} checks hold{missed}"
        return f"{'FAIL' if self.missed else 'PASS'} routing: {held}"


def replay(trace: Trace, policy: str, pools: tuple[SimPool, ...] = UNLIKE) -> Run:
    world = World(pools, trace.block_tokens)
    registry = builtin_policies()
    add_oracle(registry, world)
    model = CostModel({pool.name: facts_of(pool) for pool in pools})
    shares = tuple(PoolShare(pool.name) for pool in pools)
    outcomes = Simulation(trace, world, shares, registry, policy, model).run()
    result = summarise(policy, outcomes, world, slo_ttft_s=2.0, baseline="", places=[""] * len(outcomes))
    return Run(result, outcomes, world)


def capacity(trace: Trace) -> float:
    """Exchanges per second that the saturated fleet completes under the oracle, in the middle 80 % of a flood."""
    flood = trace.faster(trace.seconds * 100.0 / len(trace.arrivals))
    ends = sorted(o.arrival.at_s + o.e2e_s for o in replay(flood, "oracle").outcomes)
    low, high = len(ends) // 10, 9 * len(ends) // 10
    return (high - low) / (ends[high] - ends[low])


def at_load(trace: Trace, rate: float) -> Trace:
    return trace.faster(trace.seconds * rate / len(trace.arrivals))


def show(result: Result) -> None:
    ttft, hits = result.ttft, result.hits
    print(
        f"  {result.policy:12} TTFT mean {ttft.mean:7.3f} p50 {ttft.p50:6.3f} p95 {ttft.p95:7.3f} p99 {ttft.p99:7.3f}",
        f"E2E p50 {result.e2e.p50:6.2f}",
        f"hit {hits.total:5.1%} (gpu {hits.gpu:.1%} host {hits.host:.1%} fs {hits.fs:.1%})",
        f"GPU-s {result.gpu_seconds:7.0f}  error {result.prediction_error:.0%}  {list(result.by_replica.values())}",
        sep="  ",
        flush=True,
    )


def compare(trace: Trace, load: float, full: float) -> dict[str, Result]:
    print(f"{trace.name} at {load:.0%} of {full:.1f} exchanges/s:", flush=True)
    out = {}
    for policy in POLICIES:
        out[policy] = replay(at_load(trace, load * full), policy).result
        show(out[policy])
    return out


def ratios(results: dict[str, Result], other: str) -> tuple[float, float]:
    ours, theirs = results["latency"].ttft, results[other].ttft
    return ours.mean / theirs.mean, ours.p95 / theirs.p95


def study(check: Checks) -> None:
    """The conversation trace at three loads."""
    trace = mooncake("conversation")
    full = capacity(trace)
    for load in LOADS:
        results = compare(trace, load, full)
        mean, p95 = ratios(results, "oracle")
        name = f"conversation {load:.0%}"
        check(f"{name} against the oracle", max(mean, p95) <= 1.25, f"mean x{mean:.2f} p95 x{p95:.2f} (at most 1.25)")
        gained = 100 * (results["latency"].hits.total - results["oracle"].hits.total)
        check(f"{name} hit rate", gained >= -3.0, f"{gained:+.1f} points against the oracle (at least -3)")
        for other, limit in (("round_robin", 0.5), ("prefix_text", 0.7)):
            mean, p95 = ratios(results, other)
            figures = f"mean x{mean:.2f} p95 x{p95:.2f}"
            if load == 0.85:
                check(f"{name} against {other}", max(mean, p95) <= limit, f"{figures} (at most {limit})")
            else:
                check(f"{name} against {other}", max(mean, p95) < 1.0, f"{figures} (below 1)")


def order(check: Checks) -> None:
    """The same order of result on other traffic."""
    for trace in (mooncake("synthetic"), azure_with_prefixes()):
        results = compare(trace, 0.85, capacity(trace))
        means = {policy: results[policy].ttft.mean for policy in POLICIES}
        passed = means["latency"] < min(means["prefix_text"], means["round_robin"])
        check(f"{trace.name} order", passed, " ".join(f"{policy} {mean:.3f}" for policy, mean in means.items()))
        mean, p95 = ratios(results, "oracle")
        check(f"{trace.name} against the oracle", max(mean, p95) <= 1.25, f"mean x{mean:.2f} p95 x{p95:.2f}")


def hot(check: Checks) -> None:
    """One hot prefix: spread when it is a flood, kept together when it is a trickle."""
    flood = replay(hot_spot(500, 2.0), "latency", ALIKE)
    counts = list(flood.result.by_replica.values())
    worst = max(counts) / (sum(counts) / len(counts))
    check("hot spot load", worst <= 1.5, f"fullest replica x{worst:.2f} of the mean (at most 1.5), {counts}")
    best = replay(hot_spot(500, 2.0), "oracle", ALIKE)
    share = flood.result.ttft.mean / best.result.ttft.mean
    check("hot spot TTFT", share <= 1.25, f"mean {flood.result.ttft.mean:.2f} s, x{share:.2f} of the oracle's")
    trickle = replay(hot_spot(60, 120.0), "latency", ALIKE)
    cold = sum(1 for outcome in trickle.outcomes if sum(outcome.cached) < 30_000)
    check("hot spot trickle", cold <= 2, f"{cold} of 60 exchanges computed the prefix (2 at most)")


def decide(check: Checks) -> None:
    """What one decision costs; the last figure is of the everyday one, which no limit is set to."""
    for rows, limit in DECIDE_LIMITS_US.items():
        median, least = decide_us(rows)
        check(
            f"decide {rows} replicas",
            median <= limit,
            f"median of the calmest round {median:.0f} us, least {least:.0f} (at most {limit:.0f})",
        )
    median, least = decide_us(2, ALIKE, tiers=1)
    print(f"         decide 2 replicas alike, GPU cache only: median {median:.0f} us, least {least:.0f}", flush=True)


def decide_us(rows: int, pools: tuple[SimPool, ...] = UNLIKE, *, tiers: int = len(TIERS)) -> tuple[float, float]:
    """(median, least) microseconds for a prompt of 2 048 blocks, spread over pools and the first tiers.

    The median is that of the calmest round: a machine that others use too has phases in which all is half as fast.
    """
    names = [pool.name for pool in pools]
    replicas = tuple(
        Replica(f"{name}/{number}", name, f"http://{name}-{number}:8000", row, ReplicaState.READY)
        for row, (name, number) in enumerate((names[row * len(names) // rows], row) for row in range(rows))
    )
    table = LoadTable(rows)
    dice = np.random.default_rng(1)
    for row in range(rows):
        table.exchanges[row], table.prefill_tokens[row] = row % 7, 100 * row % 5000
        table.context_tokens[row] = 4000 * (row % 7)
    by_pool = {name: tuple(r for r in replicas if r.pool == name) for name in names}
    snapshot = FleetSnapshot(1, replicas, by_pool, table)
    tokens = BLOCKS * BLOCK_TOKENS
    held = dice.integers(0, tokens, (len(TIERS), rows))
    held[tiers:] = 0
    located = Located.of_tiers(held)
    router = Router(builtin_policies(), VirtualClock(), default="latency")
    model = CostModel({pool.name: facts_of(pool) for pool in pools})
    request = RouteRequest(
        tuple(PoolShare(name) for name in names), tokens, session="s", home=replicas[min(3, rows - 1)].id
    )
    rng = random.Random(1)
    took = np.empty((DECIDE_ROUNDS, DECISIONS))
    for place in np.ndindex(took.shape):
        began = time.perf_counter()
        router.decide(request, located, snapshot, model, rng)
        took[place] = time.perf_counter() - began
    return 1e6 * float(np.median(took, axis=1).min()), 1e6 * float(took.min())


SECTIONS: dict[str, Callable[[Checks], None]] = {"decide": decide, "hot": hot, "order": order, "study": study}


def main(names: list[str]) -> int:
    check = Checks()
    for name in names or list(SECTIONS):
        SECTIONS[name](check)
    print(check.verdict())
    return 1 if check.missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
