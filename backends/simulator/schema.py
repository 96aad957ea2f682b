"""A deterministic value for a JSON schema: what a model under a grammar would have to produce."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_DEPTH = 8


def sample(schema: Any, depth: int = 0) -> Any:
    """One value that fits the usual keywords of `schema`; {} for anything that is no schema."""
    if not isinstance(schema, Mapping) or depth > _DEPTH:
        return {}
    for fixed in ("const", "default"):
        if fixed in schema:
            return schema[fixed]
    if schema.get("enum"):
        return schema["enum"][0]
    for choice in ("anyOf", "oneOf", "allOf"):
        if schema.get(choice):
            return sample(schema[choice][0], depth + 1)
    return _by_type(schema, depth)


def _by_type(schema: Mapping[str, Any], depth: int) -> Any:
    kind = schema.get("type", "object")
    kind = kind[0] if isinstance(kind, list) and kind else kind
    if kind == "object":
        return _object(schema, depth)
    if kind == "array":
        return [sample(schema.get("items"), depth + 1) for _ in range(max(int(schema.get("minItems", 1)), 1))]
    if kind == "string":
        return "water".ljust(int(schema.get("minLength", 0)), ".")[: int(schema.get("maxLength", 1 << 20))]
    numbers = {"integer": int(schema.get("minimum", 1)), "number": float(schema.get("minimum", 0.5))}
    return numbers.get(str(kind), True if kind == "boolean" else None)


def _object(schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return {}
    wanted = schema.get("required") or list(properties)
    return {name: sample(properties[name], depth + 1) for name in wanted if name in properties}
