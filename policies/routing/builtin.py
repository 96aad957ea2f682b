"""The routing policies that come with Headrace."""

from __future__ import annotations

from policies.routing.hashing import ConsistentHash, ConsistentHashSpec
from policies.routing.plain import LeastLoad, LeastLoadSpec, RoundRobin, RoundRobinSpec, TwoChoices
from policies.routing.prefix_text import PrefixText, PrefixTextSpec
from policies.routing.profiles import COST, LATENCY, STICKY, THROUGHPUT, CostPolicy
from policies.routing.registry import Registry


def builtin_policies() -> Registry:
    """A registry with every built-in policy."""
    registry = Registry()
    registry.register("round_robin", RoundRobinSpec(), RoundRobin)
    registry.register("least_load", LeastLoadSpec(), LeastLoad)
    registry.register("p2c", LeastLoadSpec(), TwoChoices)
    registry.register("consistent_hash", ConsistentHashSpec(), ConsistentHash)
    registry.register("prefix_text", PrefixTextSpec(), PrefixText)
    registry.register("latency", LATENCY, CostPolicy)
    registry.register("throughput", THROUGHPUT, CostPolicy)
    registry.register("cost", COST, CostPolicy)
    registry.register("sticky", STICKY, CostPolicy)
    return registry
