"""Constrained output beyond JSON schemas, as the engine kind spells it: vLLM nests it, SGLang has one field each."""

from __future__ import annotations

import re
from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.fields import unsupported
from gateway.dialects.target import Target

_NESTED = {"regex": "regex", "ebnf": "grammar", "json_schema": "json"}  # SGLang's field -> vLLM's key
_FLAT = {nested: flat for flat, nested in _NESTED.items()}


def engine_grammar(fields: dict[str, Raw], target: Target) -> None:
    """Rewrite the constraint in `fields`, in place, when it is spelled for another engine kind.

    Raises GatewayError when the pool cannot express it: engines ignore what they do not know and say 200.
    """
    flat = [name for name in _NESTED if name in fields]
    nested = "structured_outputs" in fields
    if not flat and not nested:
        return
    if target.structured == "none":
        raise unsupported("structured_outputs" if nested else flat[0], "this model does not serve structured output")
    if target.structured == "structured_outputs" and flat:
        inner = {_NESTED[name]: msgspec.json.decode(fields.pop(name)) for name in flat}
        fields["structured_outputs"] = Raw(msgspec.json.encode(inner))
    elif target.structured == "fields" and nested:
        for name, value in _flattened(msgspec.json.decode(fields.pop("structured_outputs"))).items():
            fields[name] = Raw(msgspec.json.encode(value))


def _flattened(constraint: dict[str, Any]) -> dict[str, str]:
    if "choice" in constraint:
        return {"regex": "|".join(f"({re.escape(str(choice))})" for choice in constraint["choice"])}
    for nested, flat in _FLAT.items():
        if nested in constraint:
            value = constraint[nested]
            return {flat: value if isinstance(value, str) else msgspec.json.encode(value).decode()}
    raise unsupported("structured_outputs", "expected json, regex, choice or grammar")
