"""Validation errors of the tree as problems with a hint: the nearest key, the right unit, the right place."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, get_args

from pydantic import ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from gateway.config.model import Config
from gateway.config.node import Node
from gateway.config.problems import PathParts, Problem, nearest, spell

_UNITS = {"s": "seconds", "bytes": "bytes", "tokens": "tokens"}
_SUFFIX = re.compile(r"_(?:ms|us|s|secs?|seconds|min|minutes|h|hours|b|bytes|[kmg]i?b|tokens)$")
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-zµ]+)\s*")
_SECONDS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1, "sec": 1, "m": 60, "min": 60, "h": 3600}
_BYTES = {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
_MESSAGES = {
    "missing": "is required",
    "extra_forbidden": "unknown key",
    "too_short": "should hold at least one entry",
    "tuple_type": "should be a list",
    "model_type": "should be a mapping",
}
_NAME_PATTERN = "{0,127}"


def explain(error: ValidationError) -> Iterator[Problem]:
    """One problem per error; the text never repeats a value that could be a secret."""
    for detail in error.errors(include_url=False):
        if detail["type"] == "too_short" and len(detail["input"]) >= detail["ctx"]["min_length"]:
            continue  # only because its entries are faulty, and those are reported themselves
        yield Problem(detail["loc"], _message(detail), _hint(detail))


def _message(detail: ErrorDetails) -> str:
    kind = detail["type"]
    if kind in _MESSAGES:
        return _MESSAGES[kind]
    if kind == "value_error":
        return str(detail["ctx"]["error"])
    if kind == "string_pattern_mismatch":
        return _pattern_message(detail)
    return detail["msg"].replace("Input should", "should", 1)


def _pattern_message(detail: ErrorDetails) -> str:
    if _NAME_PATTERN in detail["ctx"]["pattern"]:
        return "should be a name: letters, digits and `._:/-`, at most 128, starting with a letter or digit"
    return "should be 64 lower-case hexadecimal digits; `headrace keys create` makes them"


def _hint(detail: ErrorDetails) -> str:
    kind, at, value = detail["type"], detail["loc"], detail["input"]
    if kind == "extra_forbidden":
        return _unknown_key(at)
    if kind == "string_type" and isinstance(value, bool | int | float):
        return f"quote it: '{value}'" if not isinstance(value, bool) else "YAML reads it as a switch: quote it"
    if kind in ("float_parsing", "int_parsing") and isinstance(value, str):
        return _quantity(str(at[-1]), value)
    if kind == "value_error" and "by reference" in str(detail["ctx"]["error"]):
        return "write ${NAME} for an environment variable or file:PATH"
    return ""


def _unknown_key(at: PathParts) -> str:
    key = str(at[-1])
    known = fields_at(at[:-1])
    stem = _SUFFIX.sub("", key)
    for name in known:
        unit = name.rpartition("_")[2]
        if unit in _UNITS and _SUFFIX.sub("", name) == stem:
            return f"the unit is in the name: {name!r}, in {_UNITS[unit]}"
    homes = [spell(path) for path in _homes(Config, key, ())]
    if homes and not any(key.startswith(name) for name in known):
        return f"it belongs under {' or '.join(homes)}"
    return nearest(key, known)


def _quantity(key: str, text: str) -> str:
    """`"30s"` for a key in seconds: say the number that was meant."""
    match = _QUANTITY.fullmatch(text)
    unit = key.rpartition("_")[2]
    table = {"s": _SECONDS, "bytes": _BYTES}.get(unit, {})
    if match is None or match[2].lower() not in table:
        return "a plain number"
    return f"{_UNITS[unit]} as a plain number: {float(match[1]) * table[match[2].lower()]:.15g}"


def fields_at(at: PathParts) -> Mapping[str, FieldInfo]:
    """Fields of the node at a path of the tree; empty when there is no node."""
    node: type[Node] | None = Config
    for part in at:
        if node is None:
            return {}
        if isinstance(part, str):
            found = node.model_fields.get(part)
            node = node_of(found.annotation) if found else None
    return node.model_fields if node else {}


def node_of(annotation: Any) -> type[Node] | None:
    """The node class inside an annotation such as `tuple[Pool, ...]` or `Tls | None`."""
    if isinstance(annotation, type) and issubclass(annotation, Node):
        return annotation
    return next((found for inner in get_args(annotation) if (found := node_of(inner))), None)


def _homes(node: type[Node], key: str, at: PathParts) -> Iterator[PathParts]:
    """Nodes of the tree that have a field called `key`."""
    if at and key in node.model_fields:
        yield at
    for name, field in node.model_fields.items():
        inner = node_of(field.annotation)
        if inner is not None:
            yield from _homes(inner, key, (*at, name))
