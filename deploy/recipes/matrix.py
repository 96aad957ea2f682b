"""The support matrix of a recipe: valid combinations of engine, GPU, count and precision, and why others are not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import msgspec
import msgspec.yaml

_KV_ROOM: Final = 0.85  # of GPU memory may be weights; the rest is KV, activations and the runtime


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Base of what the data files hold: a key nobody knows is an error."""


class Gpu(_Node, frozen=True):
    """One accelerator. Memory per device."""

    family: str
    memory_gb: float


class Row(_Node, frozen=True):
    """Combinations that a source names as valid. `inferred`: the source implies it without saying it outright."""

    gpus: tuple[str, ...]
    counts: tuple[int, ...]
    precision: str
    source: str
    inferred: bool = False
    contract: Mapping[str, Any] = {}
    needs: tuple[str, ...] = ()


class Unsupported(_Node, frozen=True):
    """GPUs that do not work, and why."""

    gpus: tuple[str, ...]
    reason: str


class Limit(_Node, frozen=True):
    """A precision or KV type that only some families have."""

    families: tuple[str, ...]
    reason: str
    precision: str | None = None
    kv_dtype: str | None = None


class Support(_Node, frozen=True, kw_only=True):
    """What one engine supports. `closed`: nothing but the rows is valid."""

    closed: bool
    unlisted: str
    multi_node: bool
    contract: Mapping[str, Any] = {}
    frontends: Mapping[str, Mapping[str, Any]] = {}
    families: tuple[str, ...] = ()
    only_rows: tuple[str, ...] = ()
    rows: tuple[Row, ...]
    unsupported: tuple[Unsupported, ...] = ()
    precisions: tuple[Limit, ...] = ()
    kv_dtypes: tuple[Limit, ...] = ()
    pd: Mapping[str, Any] = {}


class Recipe(_Node, frozen=True):
    """One model. `models` are served or checkpoint names in lower case; sizes of the weights in GB."""

    name: str
    title: str
    models: tuple[str, ...]
    weights_gb: Mapping[str, float]
    contract: Mapping[str, Any]
    engines: Mapping[str, Support]


@dataclass(frozen=True, slots=True)
class Deployment:
    """A declared pool as the matrix sees it. `gpus` per replica; None: not declared."""

    engine: str
    gpu: str | None
    gpus: int | None
    precision: str | None
    kv_dtype: str | None = None
    frontend: str | None = None
    nodes: int = 1


@dataclass(frozen=True, slots=True)
class Ruling:
    """Whether a deployment is in the matrix. `contract` holds the terms that the recipe states for it."""

    refused: str = ""  # the reason; empty when it is valid or too little is declared to say
    warnings: tuple[str, ...] = ()
    source: str = ""
    contract: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Catalogue:
    """All recipes that ship, and the accelerators they speak of, by name."""

    recipes: Mapping[str, Recipe]
    gpus: Mapping[str, Gpu]

    @classmethod
    def read(cls) -> Catalogue:
        """Read the data files of this package."""
        folder = files("deploy.recipes")
        texts = {entry.name: entry.read_bytes() for entry in folder.iterdir() if entry.name.endswith(".yaml")}
        gpus = msgspec.yaml.decode(texts.pop("gpus.yaml"), type=dict[str, Gpu])
        recipes = [msgspec.yaml.decode(text, type=Recipe) for _, text in sorted(texts.items())]
        return cls({recipe.name: recipe for recipe in recipes}, gpus)

    def recipe_for(self, model: str) -> Recipe | None:
        """The recipe of a served model name, whatever its case; None when none fits."""
        return next((recipe for recipe in self.recipes.values() if model.lower() in recipe.models), None)

    def gpu_in(self, hardware: str) -> str | None:
        """The accelerator that a hardware name starts with (`h200-nvl-fp8`: h200-nvl), None when it is no known one."""
        text = hardware.lower()
        return max((name for name in self.gpus if f"{text}-".startswith(f"{name}-")), key=len, default=None)

    def rule(self, recipe: Recipe, deployment: Deployment) -> Ruling:
        """Whether `deployment` is valid by `recipe`."""
        support = recipe.engines.get(deployment.engine)
        if support is None:
            return Ruling(refused=f"{recipe.name} has no recipe for engine {deployment.engine}")
        gpu = self.gpus.get(deployment.gpu) if deployment.gpu else None
        row = _row(support, deployment)
        refused = _impossible(support, deployment, gpu) or ("" if row else _unlisted(recipe, support, deployment, gpu))
        return Ruling(refused, _warnings(row), row.source if row else "", _contract(recipe, support, deployment, row))


def _row(support: Support, deployment: Deployment) -> Row | None:
    wanted = (deployment.gpu, deployment.gpus, deployment.precision)
    fits = (
        row for row in support.rows for gpu in row.gpus for count in row.counts if (gpu, count, row.precision) == wanted
    )
    return next(fits, None)


def _impossible(support: Support, deployment: Deployment, gpu: Gpu | None) -> str:
    """What no count of GPUs could make valid."""
    if deployment.nodes > 1 and not support.multi_node:
        return "every profile runs on a single node; multi-node deployment is not supported"
    for entry in support.unsupported:
        if deployment.gpu in entry.gpus:
            return f"{deployment.gpu} is not supported: {entry.reason}"
    if gpu is None:
        return ""
    if support.families and gpu.family not in support.families:
        return f"{deployment.gpu} is not supported: only {', '.join(support.families)}"
    for limit in (*support.precisions, *support.kv_dtypes):
        wanted = deployment.precision if limit.precision else deployment.kv_dtype
        if (limit.precision or limit.kv_dtype) == wanted and gpu.family not in limit.families:
            what = limit.precision or f"KV cache in {limit.kv_dtype}"
            return f"{what} on {deployment.gpu}: {limit.reason}"
    return ""


def _unlisted(recipe: Recipe, support: Support, deployment: Deployment, gpu: Gpu | None) -> str:
    """Why a combination outside the rows is not valid; "" when it is, or when too little is declared to say."""
    name, count, precision = deployment.gpu, deployment.gpus, deployment.precision
    if name is None or count is None or precision is None:
        return ""
    what = f"{count} x {name} with {precision}"
    if support.closed or (gpu is not None and gpu.family in support.only_rows):
        rows = [f"{n} x {row.precision}" for row in support.rows if name in row.gpus for n in row.counts]
        return f"{what}: {support.unlisted}; listed for {name}: {', '.join(rows) or 'nothing'}"
    weights = recipe.weights_gb.get(precision)
    if weights is None:
        return f"{what}: there is no checkpoint in {precision}, only in {', '.join(recipe.weights_gb)}"
    room = gpu.memory_gb * count if gpu else float("inf")
    if weights > room * _KV_ROOM:
        return f"{what}: the weights leave no room for KV ({weights:g} GB of weights, {room:g} GB of memory)"
    return ""


def _warnings(row: Row | None) -> tuple[str, ...]:
    if row is None:
        return ()
    inferred = (f"implied but not stated by its source ({row.source})",) if row.inferred else ()
    return (*inferred, *(f"needs {need}" for need in row.needs))


def _contract(recipe: Recipe, support: Support, deployment: Deployment, row: Row | None) -> Mapping[str, Any]:
    frontend = support.frontends.get(deployment.frontend or "", {})
    stated = {**recipe.contract, **support.contract, **frontend, **(row.contract if row else {})}
    return {term: _frozen(term, value) for term, value in stated.items()}


def _frozen(term: str, value: Any) -> Any:
    """YAML lists as contracts hold them: efforts in order, everything else as a set."""
    if not isinstance(value, list):
        return value
    return tuple(value) if term == "efforts" else frozenset(value)
