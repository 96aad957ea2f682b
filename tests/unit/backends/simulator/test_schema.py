"""Sample values fit their schema."""

from __future__ import annotations

from typing import Any

import pytest

from backends.simulator.schema import sample


@pytest.mark.parametrize(
    ("schema", "want"),
    [
        ({"const": 3}, 3),
        ({"enum": ["a", "b"]}, "a"),
        ({"type": "string", "minLength": 8}, "water..."),
        ({"type": "string", "maxLength": 2}, "wa"),
        ({"type": "integer", "minimum": 5}, 5),
        ({"type": "number"}, 0.5),
        ({"type": "boolean"}, True),
        ({"type": "null"}, None),
        ({"type": ["string", "null"]}, "water"),
        ({"type": "array", "items": {"type": "integer"}, "minItems": 2}, [1, 1]),
        ({"anyOf": [{"type": "null"}, {"type": "string"}]}, None),
        ({"properties": {"a": {"const": 1}, "b": {"const": 2}}, "required": ["b"]}, {"b": 2}),
        ({"properties": {"a": {"const": 1}}}, {"a": 1}),
        ({}, {}),
        (None, {}),
    ],
)
def test_sample(schema: Any, want: Any) -> None:
    assert sample(schema) == want


def test_a_schema_that_holds_itself_ends() -> None:
    loop: dict[str, Any] = {"properties": {}}
    loop["properties"]["next"] = loop
    assert sample(loop)
