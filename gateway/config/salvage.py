"""A tree with the faulty fields cut out, so that the whole-tree checks can run beside the field errors."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any

from pydantic import ValidationError

from gateway.config.explain import fields_at
from gateway.config.model import Config
from gateway.config.problems import PathParts
from gateway.config.references import References

_SECTIONS: tuple[PathParts, ...] = (("pools",), ("models",))


def salvage(data: dict[str, Any], faulty: Iterable[PathParts], references: References) -> Config | None:
    """`data` without the `faulty` fields: optional ones at their default, required ones replaced by a stand-in.

    None when too little is left. What is said about a stand-in means nothing: drop findings at or below `faulty`.
    """
    rest = copy.deepcopy(data)
    for at in faulty:
        if at in _SECTIONS:  # every reference into it would look wrong
            return None
        _cut(rest, at)
    try:
        return Config.model_validate(rest, context=references)
    except ValidationError:
        return None


def _cut(data: dict[str, Any], at: PathParts) -> None:
    parent: Any = data
    for part in at[:-1]:
        parent = parent[part]
    key: Any = at[-1]
    if isinstance(parent, list):
        parent[key] = _stand_in(at)  # entries keep their index
        return
    field = fields_at(at[:-1]).get(str(key))
    if field is None or not field.is_required():
        parent.pop(key, None)
    else:
        many = str(field.annotation).startswith("tuple")
        parent[key] = [_stand_in(at)] if many else _stand_in(at)


def _stand_in(at: PathParts) -> str:
    """A text that is a valid name and a valid hash, and equal to no other."""
    return hashlib.sha256(repr(at).encode()).hexdigest()
