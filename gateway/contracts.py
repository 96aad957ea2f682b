"""From the configuration to contracts: what each pool declares, as probing and enforcement want it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backends.engines.base import Registry
from backends.probing import Target
from gateway.config.model import Pool


def declared_terms(pool: Pool) -> Mapping[str, Any]:
    """The contract terms that a pool's configuration states, its `contract` node and its own fields together."""
    own = {
        "revision": pool.revision,
        "gpus": pool.gpus,
        "precision": pool.precision,
        "kv_dtype": pool.kv_dtype,
    }
    stated = {**own, **{name: getattr(pool.contract, name) for name in type(pool.contract).model_fields}}
    return {term: value for term, value in stated.items() if value is not None}


def target(pool: Pool, engines: Registry, recipe: Mapping[str, Any] | None = None) -> Target:
    """What to probe. `recipe` is the part of the contract that its recipe states (`deploy.recipes`)."""
    return Target(
        pool=pool.name,
        kind=engines[pool.engine],
        model=pool.model,
        declared=declared_terms(pool),
        recipe=recipe or {},
        hold_on_contradiction=pool.probe.on_contradiction == "hold",
    )
