"""A tree with the faulty fields cut out, so that the whole-tree checks can run beside the field errors."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable
from typing import Any, get_origin

from pydantic import ValidationError
from pydantic.fields import FieldInfo

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
    entry = isinstance(at[-1], int)
    owner = at[:-1] if entry else at
    field = fields_at(owner[:-1]).get(str(owner[-1]))
    optional = field is None or not field.is_required()
    *way, key = owner if optional else at  # an optional list goes as a whole
    parent: Any = data
    for part in way:
        if isinstance(parent, dict) and part not in parent:
            return  # gone already, with another fault
        parent = parent[part]
    if optional:
        parent.pop(key, None)
    elif entry:
        parent[key] = _stand_in(at)  # the others keep their index
    else:
        parent[key] = [_stand_in(at)] if _is_list(field) else _stand_in(at)


def _is_list(field: FieldInfo | None) -> bool:
    return field is not None and get_origin(field.annotation) is tuple


def _stand_in(at: PathParts) -> str:
    """A text that is a valid name and a valid hash, and equal to no other."""
    return hashlib.sha256(repr(at).encode()).hexdigest()
