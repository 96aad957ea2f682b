"""Values of wrong types deep inside a request: the client is told, in every dialect."""

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from backends.contracts import DialectName
from gateway.dialects.registry import DecodeOptions, standard
from gateway.dialects.target import Target
from gateway.errors import GatewayError

DIALECTS = standard()
TARGET = Target(engine="vllm", model="engine")


def chat(*parts: Any, role: str = "user", **fields: Any) -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(parts) or "hi", **fields}]}


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("chat", chat() | {"tool_choice": {"type": []}}),
        ("chat", chat() | {"tool_choice": {"type": "function", "function": 5}}),
        ("chat", chat() | {"tool_choice": {"type": "allowed_tools", "allowed_tools": 5}}),
        ("chat", chat() | {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": 5}}}),
        ("chat", chat() | {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"tools": [5]}}}),
        ("chat", chat() | {"response_format": {"type": []}}),
        ("chat", chat(role="assistant", function_call=True)),
        ("chat", chat({"type": "file", "file": 5})),
        ("responses", {"input": [{"type": []}]}),
        ("responses", {"input": [{"role": "user", "content": [{"type": []}]}]}),
        ("responses", {"input": "hi", "tool_choice": {"type": []}}),
        ("messages", chat() | {"tools": [{"type": []}]}),
        ("messages", chat() | {"tool_choice": {"type": []}}),
        ("messages", chat() | {"thinking": {"type": []}}),
        ("messages", chat({"type": "image", "source": True})),
        ("messages", chat({"type": "document", "source": -1})),
    ],
)
def test_a_wrong_type_is_named(name: DialectName, body: dict[str, Any]) -> None:
    whole = msgspec.json.encode({"model": "m", "max_tokens": 5} | body)
    with pytest.raises(GatewayError) as told:
        _written(name, whole)
    assert told.value.cause.status == 400
    assert told.value.param


TOOL = {"type": "object", "properties": {"a": {"type": "string"}}}
RICH: dict[DialectName, dict[str, Any]] = {
    "chat": {
        "messages": [
            {"role": "system", "content": "s"},
            {
                "role": "user",
                "content": [{"type": "text", "text": "t"}, {"type": "image_url", "image_url": {"url": "u"}}],
            },
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}],
            },
            {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "r"}]},
        ],
        "tools": [
            {"type": "function", "function": {"name": "f", "parameters": TOOL, "strict": True}},
            {"type": "custom", "custom": {"name": "g", "format": {"type": "grammar", "grammar": {"definition": "d"}}}},
        ],
        "tool_choice": {
            "type": "allowed_tools",
            "allowed_tools": {"mode": "auto", "tools": [{"type": "function", "function": {"name": "f"}}]},
        },
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": TOOL, "strict": True}},
        "stop": ["x"],
        "stream": True,
        "stream_options": {"include_usage": True},
        "chat_template_kwargs": {"enable_thinking": True},
    },
    "responses": {
        "input": [
            {"role": "developer", "content": "s"},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "t"}]},
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "z"}], "content": []},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": [{"type": "input_text", "text": "r"}]},
            {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "i"},
            {"type": "custom_tool_call_output", "call_id": "d", "output": "r"},
        ],
        "instructions": "be kind",
        "tools": [
            {"type": "function", "name": "f", "parameters": TOOL},
            {"type": "custom", "name": "g", "format": {"type": "grammar", "syntax": "lark", "definition": "d"}},
            {"type": "namespace", "name": "n", "tools": [{"type": "function", "name": "h", "parameters": TOOL}]},
            {"type": "web_search", "name": "w"},
        ],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "text": {"format": {"type": "json_schema", "name": "n", "schema": TOOL}, "verbosity": "low"},
        "reasoning": {"effort": "low", "summary": "auto"},
        "include": ["reasoning.encrypted_content"],
        "metadata": {"a": "b"},
    },
    "messages": {
        "max_tokens": 5,
        "system": [{"type": "text", "text": "s", "cache_control": {"type": "ephemeral"}}],
        "messages": [
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "t"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}},
                    {"type": "document", "source": {"type": "text", "data": "d"}, "title": "x"},
                    {"type": "search_result", "title": "x", "source": "y", "content": [{"type": "text", "text": "t"}]},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "h", "signature": "s"},
                    {"type": "tool_use", "id": "c", "name": "f", "input": {"a": "b"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c",
                        "content": [{"type": "text", "text": "r"}],
                        "is_error": True,
                    }
                ],
            },
        ],
        "tools": [
            {"name": "f", "input_schema": TOOL, "description": "d", "input_examples": [{"a": "b"}]},
            {"type": "web_search_20250305", "name": "web_search"},
        ],
        "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
        "thinking": {"type": "enabled", "budget_tokens": 2000, "display": "omitted"},
        "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": TOOL}},
        "metadata": {"user_id": "u"},
        "stop_sequences": ["x"],
    },
}
ODD: list[Any] = [None, True, -1, 2.5, "", "odd", [], [5], [None], {}, {"type": []}, {"a": None}]


@pytest.mark.parametrize("name", list(RICH))
def test_no_wrong_type_anywhere_is_an_internal_error(name: DialectName) -> None:
    body = {"model": "m"} | RICH[name]
    _written(name, msgspec.json.encode(body))
    for place in _places(body):
        for odd in ODD:
            changed = copy.deepcopy(body)
            inner: Any = changed
            for step in place[:-1]:
                inner = inner[step]
            inner[place[-1]] = odd
            with contextlib.suppress(GatewayError):
                _written(name, msgspec.json.encode(changed))


def _places(value: Any) -> Iterator[tuple[Any, ...]]:
    """The paths of all members at all depths."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, member in entries:
        yield (step,)
        yield from ((step, *rest) for rest in _places(member))


def _written(name: DialectName, body: bytes) -> bytes:
    request = DIALECTS[name].decode_request(body, {}, DecodeOptions())
    return DIALECTS[name].encode_engine_request(request, TARGET).body
