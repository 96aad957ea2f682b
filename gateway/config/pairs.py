"""Whether the prefill/decode pairs of a configuration can work."""

from __future__ import annotations

from collections.abc import Iterator

from backends.contract import PoolContract
from gateway.config.model import Config, Pool
from gateway.config.problems import PathParts, Problem, nearest


def prefill_pools(config: Config) -> frozenset[str]:
    """Names of the pools that prefill for others."""
    return frozenset(pool.prefill.pool for pool in config.pools if pool.prefill is not None)


def check_pairs(config: Config) -> Iterator[Problem]:
    """Unknown and unfit partners, and prefill pools that clients would reach."""
    if not prefill_pools(config):
        return
    pools = {pool.name: pool for pool in config.pools}
    for place, pool in enumerate(config.pools):
        if pool.prefill is None:
            continue
        at = ("pools", place, "prefill", "pool")
        partner = pools.get(pool.prefill.pool)
        if partner is None:
            yield Problem(at, f"there is no pool {pool.prefill.pool!r}", nearest(pool.prefill.pool, tuple(pools)))
        else:
            yield from _pair(at, partner, pool)
    yield from _reached(config)


def _pair(at: PathParts, prefill: Pool, decode: Pool) -> Iterator[Problem]:
    if prefill is decode:
        yield Problem(at, "is the pool itself", "name the pool that computes its prompts")
    elif prefill.prefill is not None:
        yield Problem(at, f"pool {prefill.name!r} decodes for pool {prefill.prefill.pool!r}; it cannot prefill too")
    else:
        yield from _unfit(at, prefill, decode)


def _unfit(at: PathParts, prefill: Pool, decode: Pool) -> Iterator[Problem]:
    """What both pools declare, side by side."""
    from backends.engines import builtin  # here: few configurations have pairs
    from policies.compatibility import check_pair

    engines = builtin().view()
    kind = engines.get(decode.engine)
    if kind is not None and kind.handover is None:
        yield Problem(at, f"engine {decode.engine!r} cannot be split in prefill and decode")
        return
    for finding in check_pair(_declared(prefill), _declared(decode)):
        if finding.severity == "refuse":
            yield Problem(at, finding.message)


def _declared(pool: Pool) -> PoolContract:
    from backends.engines import builtin
    from backends.probing import unprobed
    from gateway.contracts import target

    return unprobed(target(pool, builtin()))


def _reached(config: Config) -> Iterator[Problem]:
    """A prefill server answers with one token, or nothing: no model may list its pool."""
    prefill = prefill_pools(config)
    for i, model in enumerate(config.models):
        for j, pool in enumerate(model.pools):
            if pool in prefill:
                at = ("models", i, "pools", j)
                yield Problem(at, f"pool {pool!r} prefills for another pool", "list the decode pool alone")
