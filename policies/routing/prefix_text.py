"""Longest known text prefix, as inference routers without engine events do it: to compare with."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import ClassVar

from pydantic import Field

from policies.routing.plain import ATTEMPTS
from policies.routing.registry import Case, PolicySpec, Ranking


class PrefixTextSpec(PolicySpec):
    """The usual thresholds: below `match` of the prompt the emptiest replica is taken, out of balance the idlest."""

    looks_up: ClassVar[bool] = True

    match: float = Field(0.3, ge=0, le=1)
    imbalance_exchanges: int = Field(64, ge=0)
    imbalance_ratio: float = Field(1.5, ge=1)
    blocks: int = Field(2_000_000, ge=1)  # remembered text blocks


class PrefixText:
    """Remembers which replica got which prompt; knows nothing of evictions, tiers or speeds."""

    __slots__ = ("_numbers", "_seen", "_sizes", "_spec")

    def __init__(self, spec: PrefixTextSpec) -> None:
        self._spec = spec
        self._numbers: dict[str, int] = {}
        self._seen: OrderedDict[int, int] = OrderedDict()  # block hash -> bit set of replica numbers
        self._sizes: dict[int, int] = {}  # replica number -> blocks

    def rank(self, case: Case) -> Ranking:
        """Idlest when unbalanced, else longest match, else the replica that remembers least."""
        slate, view = case.slate, case.view
        exchanges = view.table.exchanges
        loads = [exchanges[row] for row in slate.rows]
        low, high = min(loads), max(loads)
        spec, chain = self._spec, case.request.chain
        numbers = [self._number(view.replicas[row].id) for row in slate.rows]
        if high - low > spec.imbalance_exchanges and high > spec.imbalance_ratio * low:
            keys = [(float(load), 0.0) for load in loads]
        else:
            depth = self._match(chain, numbers)
            if max(depth) > spec.match * len(chain):
                keys = [(-float(depth[place]), float(load)) for place, load in enumerate(loads)]
            else:
                keys = [(float(self._sizes.get(number, 0)), 0.0) for number in numbers]
        order = sorted(range(len(slate)), key=keys.__getitem__)[:ATTEMPTS]
        self._remember(chain, numbers[order[0]])
        return Ranking([slate.rows[place] for place in order])

    def _number(self, replica_id: str) -> int:
        return self._numbers.setdefault(replica_id, len(self._numbers))

    def _match(self, chain: Sequence[int], numbers: list[int]) -> list[int]:
        """Matched blocks per replica."""
        depth = dict.fromkeys(numbers, 0)
        left = sum(1 << number for number in numbers)
        for place, block in enumerate(chain, 1):
            left &= self._seen.get(block, 0)
            if not left:
                break
            for number in numbers:
                if left >> number & 1:
                    depth[number] = place
        return [depth[number] for number in numbers]

    def _remember(self, chain: Sequence[int], number: int) -> None:
        bit = 1 << number
        for block in chain:
            known = self._seen.pop(block, 0)
            self._seen[block] = known | bit
            if not known & bit:
                self._sizes[number] = self._sizes.get(number, 0) + 1
        while len(self._seen) > self._spec.blocks:
            _, holders = self._seen.popitem(last=False)
            for holder in [n for n in self._sizes if holders >> n & 1]:
                self._sizes[holder] -= 1
