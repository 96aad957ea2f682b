"""The cost model of one process, where there is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from policies.cost_model.facts import PoolFacts, Score

if TYPE_CHECKING:
    from policies.cost_model.model import CostModel


class Costs:
    """Holds the cost model from the first configuration on that wants one.

    Its columns are numpy's, which costs memory and a slower start: a process that never counts costs is spared both.
    """

    __slots__ = ("model",)

    def __init__(self) -> None:
        self.model: CostModel | None = None

    def follow(self, facts: Mapping[str, PoolFacts], *, wanted: bool) -> None:
        """Follow a configuration. `wanted`: it has a policy that may count costs. May run in a thread."""
        if self.model is not None:
            self.model.declare(facts)
        elif wanted:
            from policies.cost_model.model import CostModel

            self.model = CostModel(facts)

    def scores(self) -> tuple[Score, ...]:
        """How well every replica is predicted; empty before the first decision by costs."""
        return () if self.model is None else self.model.scores()
