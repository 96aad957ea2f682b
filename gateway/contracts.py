"""From the configuration to contracts: what each pool declares, as probing and enforcement want it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backends.contract import PoolContract
from backends.engines.base import Registry
from backends.probing import Target
from deploy.recipes import Catalogue
from gateway.config.model import Pool
from gateway.config.recipes import deployment, recipe_terms
from policies.compatibility import Finding, check_pair, check_pool, check_shared_root


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


def target(pool: Pool, engines: Registry, catalogue: Catalogue | None = None) -> Target:
    """What to probe. With a catalogue the pool's recipe states what nobody declared."""
    recipe: dict[str, Any] = {}
    if catalogue is not None:
        recipe = {**recipe_terms(pool, catalogue), "gpu": deployment(pool, catalogue).gpu}
    return Target(
        pool=pool.name,
        kind=engines[pool.engine],
        model=pool.model,
        declared=declared_terms(pool),
        recipe=recipe,
        hold_on_contradiction=pool.probe.on_contradiction == "hold",
    )


def compatibility(
    contracts: Mapping[str, PoolContract],
    pairs: Iterable[tuple[str, str]] = (),
    roots: Mapping[str, Sequence[str]] | None = None,
) -> tuple[Finding, ...]:
    """Everything that does not fit: each pool by itself, (prefill, decode) pairs, pools over one KV root.

    Pools are named as in `contracts`. Findings that refuse keep the pools from being registered.
    """
    found = [finding for contract in contracts.values() for finding in check_pool(contract)]
    for prefill, decode in pairs:
        found.extend(check_pair(contracts[prefill], contracts[decode]))
    for root, pools in (roots or {}).items():
        found.extend(check_shared_root(root, [contracts[pool] for pool in pools]))
    return tuple(found)
