"""What routing has to know of one exchange."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import msgspec

_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, eq=False)  # compared by identity: made once per configuration, looked up always
class PoolShare:
    """One pool of a model. `weight` divides traffic among equals; `share` < 1 makes the pool a canary."""

    name: str
    weight: float = 1.0
    share: float = 1.0  # part of the exchanges that may see this pool, 0..1


class RouteRequest(msgspec.Struct):  # a struct is made in a fifth of the time of a dataclass, and one per exchange
    """One exchange as routing sees it. Token counts may be estimates; empty strings mean unknown."""

    pools: tuple[PoolShare, ...]  # the pools whose contract fits, in the model's order of preference
    prompt_tokens: int = 0
    output_tokens: int = 256  # expected
    priority: int = 0  # higher is sooner; 0 is normal
    policy: str = ""  # profile of the tenant or model; empty: the router's default
    tenant: str = ""
    session: str = ""  # session hint of the dialect
    home: str = ""  # id of the replica that served this session last
    prefix_key: int = 0  # stable hash of the prompt's head; 0: none
    chain: Sequence[int] = ()  # hashes of the prompt's text blocks, each covering all blocks before it
    lora: str = ""
    spill_after_ms: float = 0.0  # the first pool is kept until it costs this much more; 0: no preference
    spill_back_ms: float = 0.0  # and taken back once it is within this
    exclude: frozenset[str] = frozenset()  # replica ids that must not be tried again
    refused: Mapping[str, str] = _NOTHING  # pool -> why its contract does not fit: evidence only
    partners: Mapping[str, tuple[PoolShare, ...]] = _NOTHING  # decode pool -> prefill pool, if any
    alone: frozenset[str] = frozenset()  # decode pools that can prefill themselves when no partner is left
