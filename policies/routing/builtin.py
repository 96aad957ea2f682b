"""The routing policies that come with Headrace."""

from __future__ import annotations

from policies.routing.hashing import ConsistentHash, ConsistentHashSpec
from policies.routing.plain import LeastLoad, LeastLoadSpec, RoundRobin, RoundRobinSpec, TwoChoices
from policies.routing.prefix_text import PrefixText, PrefixTextSpec
from policies.routing.profiles import COST, LATENCY, STICKY, THROUGHPUT, CostSpec
from policies.routing.registry import Policy, Registry


def builtin_policies() -> Registry:
    """A registry with every built-in policy."""
    registry = Registry()
    registry.register("round_robin", RoundRobinSpec(), RoundRobin)
    registry.register("least_load", LeastLoadSpec(), LeastLoad)
    registry.register("p2c", LeastLoadSpec(), TwoChoices)
    registry.register("consistent_hash", ConsistentHashSpec(), ConsistentHash)
    registry.register("prefix_text", PrefixTextSpec(), PrefixText)
    registry.register("latency", LATENCY, _cost_policy)
    registry.register("throughput", THROUGHPUT, _cost_policy)
    registry.register("cost", COST, _cost_policy)
    registry.register("sticky", STICKY, _cost_policy)
    return registry


def _cost_policy(spec: CostSpec) -> Policy:
    from policies.routing.cost_policy import CostPolicy  # here: it brings numpy, which plain policies do without

    return CostPolicy(spec)
