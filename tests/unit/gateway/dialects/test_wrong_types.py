"""Values of wrong types deep inside a request: the client is told, in every dialect."""

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


def _written(name: DialectName, body: bytes) -> bytes:
    request = DIALECTS[name].decode_request(body, {}, DecodeOptions())
    return DIALECTS[name].encode_engine_request(request, TARGET).body
