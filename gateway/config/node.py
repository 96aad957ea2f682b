"""The base of every node of the configuration tree, and types that several modules of it use."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]{0,127}$")]
Positive = Annotated[float, Field(gt=0)]


class Node(BaseModel):
    """Base of every node: frozen, and a key nobody knows is an error.

    Validators are built on first use: only the tree as a whole has one, its nodes need none of their own.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
