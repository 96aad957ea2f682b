"""What the cost-based policies weigh: one computation, tuned for what a tenant or model wants."""

from __future__ import annotations

from typing import ClassVar

from pydantic import Field

from policies.routing.registry import PolicySpec


class CostSpec(PolicySpec):
    """Weights of the terms. With all at 1 the cost is the time until the answer is complete, for everybody."""

    looks_up: ClassVar[bool] = True

    wait: float = Field(1.0, ge=0)  # queue, restore, prefill: the newcomer's own time to first token
    work: float = Field(0.0, ge=0)  # restore and prefill once more: work that keeps a replica from others
    decode: float = Field(0.02, ge=0)  # the newcomer's own decode time
    interference: float = Field(0.04, ge=0)  # each ms that each running stream loses
    price: float = Field(0.0, ge=0)  # ms that one unit of money is worth
    affinity_ms: float = Field(20.0, ge=0)  # credit of the replica that served the session last
    adapter_load_ms: float = Field(1500.0, ge=0)  # a LoRA adapter that a replica has to load first
    near_ms: float = Field(2.0, ge=0)
    near_share: float = Field(0.02, ge=0)


LATENCY = CostSpec()
THROUGHPUT = CostSpec(wait=0.2, work=1.0, decode=0.2, interference=0.05, affinity_ms=5.0)
COST = CostSpec(wait=0.1, work=0.0, decode=0.0, interference=0.01, price=1e6, affinity_ms=5.0)
STICKY = CostSpec(affinity_ms=3000.0)
