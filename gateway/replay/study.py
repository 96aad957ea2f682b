"""`headrace replay`: a trace and a configuration in, one result per policy out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from backends.profiles import DEFAULT_PROFILE, EngineName, load_profile
from gateway.config.model import Config, Model, Pool
from gateway.replay.report import Result, Study, summarise
from gateway.replay.simulation import Simulation
from gateway.replay.trace import Trace, TraceError, read_trace
from gateway.replay.world import SimPool, World
from policies.cost_model.facts import PoolFacts
from policies.cost_model.model import CostModel
from policies.routing.builtin import builtin_policies
from policies.routing.request import PoolShare

Progress = Callable[[str, int, int], None]  # policy, exchanges sent, exchanges in all
DEFAULT_POLICIES = ("round_robin", "prefix_text", "latency")
ENGINES: dict[str, EngineName] = {"vllm": "vllm", "sglang": "sglang", "nim": "nim"}


@dataclass(frozen=True, slots=True)
class Options:
    """How to replay. `rate` speeds the trace up; `limit` takes only its first exchanges."""

    model: str = ""  # a model of the configuration; empty: its first
    rate: float = 1.0
    limit: int | None = None
    slo_ttft_s: float = 2.0
    seed: int = 1


class ReplayError(ValueError):
    """The replay cannot be done as asked; the message is for the user."""


def run(
    trace_path: Path,
    config: Config,
    policies: Sequence[str] = (),
    options: Options | None = None,
    progress: Progress | None = None,
) -> Study:
    """Replay a trace under each policy, every time from an empty fleet.

    Raises ReplayError for a policy, model, engine or hardware profile that is not known, TraceError for a bad trace,
    OSError when it cannot be read.
    """
    asked = options or Options()
    names = tuple(policies) or DEFAULT_POLICIES
    model = _model(config, asked.model)
    pools = _sim_pools(config, model)
    _check(names, pools)
    trace = _prepared(read_trace(trace_path), asked)
    replay = _Replay(trace, model, pools, asked, progress)
    results: list[Result] = []
    recorded = [arrival.served_by for arrival in trace.arrivals]
    baseline, places = ("the trace", recorded) if any(recorded) else (names[0], [])
    for name in names:
        result, served_by = replay.one(name, baseline, places)
        places = places or served_by
        results.append(result)
    return Study(trace.name, len(trace.arrivals), trace.seconds, asked.slo_ttft_s, tuple(results))


@dataclass(frozen=True, slots=True)
class _Replay:
    trace: Trace
    model: Model
    pools: tuple[SimPool, ...]
    options: Options
    progress: Progress | None

    def one(self, policy: str, baseline: str, places: list[str]) -> tuple[Result, list[str]]:
        """Replay under one policy; returns its result, and which replica served each exchange."""
        world = World(self.pools, self.trace.block_tokens)
        simulation = Simulation(
            trace=self.trace,
            world=world,
            pools=tuple(PoolShare(pool.name, pool.weight) for pool in self.pools),
            registry=builtin_policies(),
            policy=policy,
            cost_model=CostModel({pool.name: facts_of(pool) for pool in self.pools}),
            seed=self.options.seed,
            spill_after_ms=self.model.spill_after_ms,
            spill_back_ms=self.model.spill_back_ms,
        )
        report = self.progress
        outcomes = simulation.run(None if report is None else lambda sent, total: report(policy, sent, total))
        ids = [replica.id for replica in world.snapshot.replicas]
        served_by = [ids[outcome.row] if outcome.row >= 0 else "" for outcome in outcomes]
        result = summarise(
            policy,
            outcomes,
            world,
            slo_ttft_s=self.options.slo_ttft_s,
            baseline=baseline,
            places=places or served_by,
        )
        return result, served_by


def facts_of(pool: SimPool) -> PoolFacts:
    """What the cost model is told of a simulated pool before it has seen anything."""
    profile = pool.profile or load_profile(pool.hardware, pool.engine)
    return PoolFacts(
        profile,
        gpus=pool.gpus,
        price_per_gpu_hour=pool.price_per_gpu_hour,
        obeys_load_tiers=pool.obeys_load_tiers,
    )


def _model(config: Config, name: str) -> Model:
    if not name:
        return config.models[0]
    for model in config.models:
        if model.name == name or name in model.aliases:
            return model
    raise ReplayError(f"no model {name!r} in the configuration; it has {', '.join(m.name for m in config.models)}")


def _sim_pools(config: Config, model: Model) -> tuple[SimPool, ...]:
    by_name = {pool.name: pool for pool in config.pools}
    return tuple(_sim_pool(by_name[name]) for name in model.pools)


def _sim_pool(pool: Pool) -> SimPool:
    engine = ENGINES.get(pool.engine)
    if engine is None:
        raise ReplayError(f"pool {pool.name!r}: no simulator for engine {pool.engine!r}")
    return SimPool(
        name=pool.name,
        engine=engine,
        hardware=pool.hardware or DEFAULT_PROFILE,
        urls=tuple(pool.replicas),
        gpus=pool.gpus or 1,
        weight=pool.weight,
        price_per_gpu_hour=pool.price_per_gpu_hour,
        obeys_load_tiers=pool.obeys_load_tiers,
    )


def _check(names: Sequence[str], pools: Sequence[SimPool]) -> None:
    registry = builtin_policies()
    unknown = [name for name in names if name not in registry]
    if unknown:
        raise ReplayError(f"unknown policy {unknown[0]!r}; known: {', '.join(registry)}")
    for pool in pools:
        try:
            load_profile(pool.hardware, pool.engine)
        except KeyError as error:
            raise ReplayError(f"pool {pool.name!r}: {error.args[0]}") from None


def _prepared(trace: Trace, options: Options) -> Trace:
    if options.rate <= 0:
        raise ReplayError("rate must be above 0")
    if options.limit is not None:
        trace = trace.first(options.limit)
    if not trace.arrivals:
        raise TraceError(f"{trace.name}: no exchange left to replay")
    return trace if options.rate == 1.0 else trace.faster(options.rate)
