"""The routing policies that come with Headrace."""

from __future__ import annotations

from policies.routing.hashing import ConsistentHash, ConsistentHashSpec
from policies.routing.plain import LeastLoad, LeastLoadSpec, RoundRobin, RoundRobinSpec, TwoChoices
from policies.routing.registry import Registry


def builtin_policies() -> Registry:
    """A registry with every built-in policy."""
    registry = Registry()
    registry.register("round_robin", RoundRobinSpec(), RoundRobin)
    registry.register("least_load", LeastLoadSpec(), LeastLoad)
    registry.register("p2c", LeastLoadSpec(), TwoChoices)
    registry.register("consistent_hash", ConsistentHashSpec(), ConsistentHash)
    return registry
