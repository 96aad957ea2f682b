from __future__ import annotations

from dataclasses import replace

import pytest

from gateway.dialects.model import Tool
from gateway.dialects.tools import is_object, may_enforce
from tests.unit.gateway.dialects.support import VLLM, encode, sent

CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT = {"type": "function", "function": {"name": "f", "parameters": CITY}}
RESPONSES = {"type": "function", "name": "f", "parameters": CITY, "strict": False}
MESSAGES = {"name": "f", "input_schema": CITY}
FORCED = [
    ("chat", {"tools": [CHAT], "tool_choice": "required"}),
    ("chat", {"tools": [CHAT], "tool_choice": {"type": "function", "function": {"name": "f"}}}),
    ("responses", {"tools": [RESPONSES], "tool_choice": "required"}),
    ("messages", {"tools": [MESSAGES], "tool_choice": {"type": "any"}}),
    ("messages", {"tools": [MESSAGES], "tool_choice": {"type": "tool", "name": "f"}}),
]


def of(schema) -> Tool:
    return Tool("f", None, schema)


@pytest.mark.parametrize(("dialect", "fields"), FORCED)
def test_forced_calls_are_held_to_their_schema(dialect, fields):
    engine = encode(dialect, fields)
    assert engine.adapted == ("tools.enforced",)
    (tool,) = sent(dialect, fields)["tools"]
    assert tool["function"] == {"name": "f", "parameters": CITY, "strict": True}


@pytest.mark.parametrize(("dialect", "fields"), FORCED)
def test_calls_that_are_free_or_strict_already_are_as_the_client_said(dialect, fields):
    free = {key: value for key, value in fields.items() if key != "tool_choice"}
    assert encode(dialect, free).adapted == ()
    assert sent(dialect, free)["tools"][0]["function"].get("strict") in {None, False}
    assert encode(dialect, fields, replace(VLLM, strict_tools=False)).adapted == ()


def test_strict_tools_need_nothing():
    strict = {"type": "function", "function": CHAT["function"] | {"strict": True}}
    engine = encode("chat", {"tools": [strict], "tool_choice": "required"})
    assert engine.adapted == ()


@pytest.mark.parametrize(
    "schema",
    [
        CITY,
        {"type": "object", "properties": {"a": {"type": "array", "items": CITY}, "b": {"enum": ["x", 1]}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}},
        {"type": "object", "properties": {"a": True}, "additionalProperties": {"type": "string"}},
    ],
)
def test_schemas_that_a_grammar_can_stand_for(schema):
    assert may_enforce(of(schema))


@pytest.mark.parametrize(
    "schema",
    [
        None,
        True,
        {},
        {"type": "object"},  # free-form: a strict one would have to be empty
        {"type": "object", "properties": {}},
        {"type": "object", "properties": {"a": {"type": "object"}}},
        {"type": "object", "properties": {"a": {"type": "array"}}},
        {"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/a"}}, "$defs": {"a": CITY}},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(?=x)"}}},
        {"type": "object", "properties": {"a": {"anyOf": [{"not": {}}]}}},
        {"type": "object", "properties": {"a": 5}},
        {"type": "object", "properties": ["a"]},
    ],
)
def test_schemas_with_anything_unusual_are_left_alone(schema):
    assert not may_enforce(of(schema))


@pytest.mark.parametrize(
    ("text", "answer"),
    [("{}", True), (' {"a": [1]} ', True), ("[1]", False), ("13", False), ('{"a"', False), ("", False)],
)
def test_objects(text, answer):
    assert is_object(text) == answer
