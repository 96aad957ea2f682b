"""What a routing policy is, and the write-once table of them. A new policy is one file and its test."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, Protocol, TypeVar

import msgspec
from pydantic import BaseModel, ConfigDict

from backends.contracts import Expected, Random, Replica, Tier
from policies.routing.request import RouteRequest
from policies.routing.view import FleetView, Slate

if TYPE_CHECKING:  # with numpy, which only policies that look up load
    from backends.located import Located
    from policies.routing.columns import FleetColumns

Terms = Mapping[str, float]
_NOBODY: Final[Mapping[str, Any]] = MappingProxyType({})
S = TypeVar("S", bound="PolicySpec")


class PolicySpec(BaseModel):
    """Tunables of one policy. Frozen; an unknown key is an error.

    `looks_up`: the policy asks where a prompt is cached, which costs a look-up that others are spared.
    """

    looks_up: ClassVar[bool] = False

    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class Partner:
    """The best prefill replica for a decode pool, and how it was ranked: the prompt is computed there."""

    replica: Replica
    ranking: Ranking


class Case(msgspec.Struct):  # as `RouteRequest` is
    """Everything one ranking may look at. `slate` is never empty."""

    request: RouteRequest
    slate: Slate
    view: FleetView
    located: Located | None
    columns: FleetColumns | None  # None: there is no cost model
    rng: Random
    now_s: float
    partners: Mapping[str, Partner] = _NOBODY  # by decode pool


class Charge(msgspec.Struct, frozen=True):
    """Predicted work of the first row, in ms, for the queues it will stand in."""

    prefill_ms: float
    link_ms: float
    fs_ms: float


class Ranking(msgspec.Struct):
    """A policy's answer. `rows` is best first and need not name every row of the slate."""

    rows: Sequence[int]
    expected: Expected | None = None  # of the first row
    cost_ms: float = 0.0  # of the first row; 0 from policies that count no time
    charge: Charge | None = None
    prefill_tokens: int | None = None  # work to count on its lease; None: the whole prompt
    load_tiers: tuple[Tier, ...] | None = None  # tiers the engine should load from; None: all it finds
    # Cost terms in ms by row; called only when somebody wants to see them.
    terms: Callable[[], Mapping[int, Terms]] | None = None


class Policy(Protocol):
    """Ranks replicas. May keep bounded state of its own choices, and nothing else."""

    def rank(self, case: Case) -> Ranking:
        """Order the slate's rows, best first."""
        ...


@dataclass(frozen=True, slots=True)
class Entry:
    """One kind of policy: its tunables and how to make one."""

    spec: PolicySpec
    make: Callable[[], Policy]


class Registry:
    """Write-once table of policies; a duplicate name raises."""

    __slots__ = ("_entries",)

    def __init__(self) -> None:
        self._entries: dict[str, Entry] = {}

    def register(self, name: str, spec: S, make: Callable[[S], Policy]) -> None:
        """Add a policy with the tunables it is made with."""
        if name in self._entries:
            raise ValueError(f"routing policy {name!r} is registered twice")
        self._entries[name] = Entry(spec, lambda: make(spec))

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def looks_up(self, name: str) -> bool:
        """Whether a policy asks where prompts are cached. Raises KeyError for an unknown name."""
        return self._entries[name].spec.looks_up

    def make(self, name: str) -> Policy:
        """A fresh policy, with no memory of others. Raises KeyError for an unknown name."""
        return self._entries[name].make()
