"""Recipes: which engine serves a model on which hardware, as data, and whether a declared pool is among it."""

from __future__ import annotations

from deploy.recipes.matrix import Catalogue, Deployment, Recipe, Ruling

__all__ = ["Catalogue", "Deployment", "Recipe", "Ruling"]
