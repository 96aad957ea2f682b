"""Whether the pools of a configuration are in the support matrix of their recipe, and make sense on their GPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backends.contract import PoolContract, Terms
from deploy.recipes import Catalogue, Deployment, Recipe, Ruling
from gateway.config.model import Config, Pool
from gateway.config.problems import Problem, nearest
from policies.compatibility import check_pool


def check_recipes(config: Config) -> Iterator[Problem]:
    """A pool outside its matrix is refused, unless it says `unlisted: true`."""
    if not any(_says_enough(pool) for pool in config.pools):
        return  # reading the recipes takes a while
    catalogue = Catalogue.read()
    for place, pool in enumerate(config.pools):
        if pool.recipe is not None and pool.recipe not in catalogue.recipes:
            hint = nearest(pool.recipe, tuple(catalogue.recipes))
            yield Problem(("pools", place, "recipe"), f"unknown recipe {pool.recipe!r}", hint)
            continue
        at = ("pools", place, "hardware") if pool.hardware else ("pools", place)
        for finding in check_pool(_declared(pool, catalogue)):
            yield Problem(at, finding.message, warning=finding.severity == "warn")
        ruling = ruling_for(pool, catalogue)
        if ruling is None:
            continue
        if ruling.refused:
            hint = "" if pool.unlisted else "`unlisted: true` on the pool serves it all the same"
            yield Problem(at, f"is outside the support matrix: {ruling.refused}", hint, warning=pool.unlisted)
        for warning in ruling.warnings:
            yield Problem(at, warning, warning=True)


def ruling_for(pool: Pool, catalogue: Catalogue) -> Ruling | None:
    """What the pool's recipe says of it; None without a recipe."""
    recipe = recipe_of(pool, catalogue)
    return catalogue.rule(recipe, deployment(pool, catalogue)) if recipe else None


def recipe_of(pool: Pool, catalogue: Catalogue) -> Recipe | None:
    """The recipe a pool names, else the one of its served model."""
    return catalogue.recipes.get(pool.recipe) if pool.recipe else catalogue.recipe_for(pool.model)


def recipe_terms(pool: Pool, catalogue: Catalogue) -> Mapping[str, Any]:
    """The contract terms that the pool's recipe states; {} without a recipe."""
    ruling = ruling_for(pool, catalogue)
    return ruling.contract if ruling else {}


def deployment(pool: Pool, catalogue: Catalogue) -> Deployment:
    """The declared pool as the matrix sees it."""
    return Deployment(
        engine=pool.engine,
        gpu=pool.contract.gpu or (catalogue.gpu_in(pool.hardware) if pool.hardware else None),
        gpus=pool.gpus,
        precision=pool.precision,
        kv_dtype=pool.kv_dtype,
        frontend=pool.contract.frontend,
    )


def _declared(pool: Pool, catalogue: Catalogue) -> PoolContract:
    return PoolContract(pool.name, pool.engine, Terms(gpu=deployment(pool, catalogue).gpu, precision=pool.precision))


def _says_enough(pool: Pool) -> bool:
    return pool.recipe is not None or pool.hardware is not None or pool.contract.gpu is not None
