"""Which pools fit together: prefill/decode pairs, pools over one KV root, replicas of one pool."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Final, Literal

from backends.contract import PoolContract, show

HOPPER: Final = frozenset({"h100", "h200", "h200-nvl", "h20", "h800", "gh200"})
# What KV blocks depend on: with any of these unequal, one engine reads what another wrote as noise.
_BLOCKS: Final = (
    "model",
    "revision",
    "tokenizer",
    "precision",
    "kv_dtype",
    "block_size",
    "kv_layout",
    "conv_layout",
    "spec_tokens",
    "hash_algorithm",
    "hash_seed",
)
# A pair hands blocks over by request and not by hash.
_PAIR: Final = tuple(term for term in _BLOCKS if not term.startswith("hash_"))
_ONE_POOL: Final = ("version", "model", "revision", "precision", "kv_dtype", "block_size", "hash_seed")


@dataclass(frozen=True, slots=True)
class Finding:
    """Two things that do not fit, or may not. The message names both values."""

    severity: Literal["refuse", "warn"]
    term: str
    message: str


def check_pair(prefill: PoolContract, decode: PoolContract) -> tuple[Finding, ...]:
    """Whether two pools can be a prefill/decode pair."""
    what = f"pools {prefill.pool!r} (prefill) and {decode.pool!r} (decode)"
    engines = _engines(what, prefill, decode)
    return (*engines, *(_compare(what, term, prefill, decode) for term in _differing(_PAIR, prefill, decode)))


def check_shared_root(root: str, contracts: Sequence[PoolContract]) -> tuple[Finding, ...]:
    """Whether pools can keep their KV under one root; every pair of them is compared."""
    found: list[Finding] = []
    for one, other in combinations(contracts, 2):
        what = f"pools {one.pool!r} and {other.pool!r} over {root}"
        found.extend(_engines(what, one, other))
        found.extend(_compare(what, term, one, other) for term in _differing(_BLOCKS, one, other))
    return tuple(found)


def check_replicas(contracts: Sequence[PoolContract]) -> tuple[Finding, ...]:
    """Whether replicas of one pool, each probed for itself, are interchangeable. Differences warn."""
    found: list[Finding] = []
    for term in _ONE_POOL:
        values = {getattr(contract.terms, term) for contract in contracts} - {None}
        if len(values) > 1:
            listed = " and ".join(sorted(show(value) for value in values))
            found.append(Finding("warn", term, f"replicas of pool {contracts[0].pool!r} differ in {term}: {listed}"))
    return tuple(found)


def check_pool(contract: PoolContract) -> tuple[Finding, ...]:
    """What a pool's own values say against each other."""
    terms = contract.terms
    if terms.precision == "nvfp4" and terms.gpu in HOPPER:
        message = (
            f"pool {contract.pool!r} runs nvfp4 on {terms.gpu}: Hopper has no 4-bit math and unpacks the weights for "
            "every step, which saves memory and is slower than fp8 on the same GPUs"
        )
        return (Finding("warn", "precision", message),)
    return ()


def _engines(what: str, one: PoolContract, other: PoolContract) -> Iterator[Finding]:
    if one.engine != other.engine:
        yield Finding("refuse", "engine", f"{what} differ in engine: {one.engine} and {other.engine}")


def _differing(terms: Sequence[str], one: PoolContract, other: PoolContract) -> Iterator[str]:
    return (term for term in terms if _value(one, term) != _value(other, term))


def _compare(what: str, term: str, one: PoolContract, other: PoolContract) -> Finding:
    left, right = _value(one, term), _value(other, term)
    message = f"{what} differ in {term}: {show(left)} and {show(right)}"
    # What is unknown on one side may still be equal.
    return Finding("warn" if None in (left, right) else "refuse", term, message)


def _value(contract: PoolContract, term: str) -> Any:
    return getattr(contract.terms, term)
