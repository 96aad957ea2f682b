"""Tools of a Chat request, the deprecated `functions` included."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.fields import at, invalid, list_of, missing, object_of, type_of, unsupported
from gateway.dialects.model import Request, ToolChoice
from gateway.dialects.tools import ToolList


class _Function(msgspec.Struct):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Custom(msgspec.Struct):
    name: str
    description: str | None = None
    format: dict[str, Any] = {}


class _Tool(msgspec.Struct):
    type: str
    function: _Function | None = None
    custom: _Custom | None = None


_tool = msgspec.json.Decoder(_Tool)
_function = msgspec.json.Decoder(_Function)


def _decoded(place: str, decoder: msgspec.json.Decoder[Any], value: Raw) -> Any:
    try:
        return decoder.decode(value)
    except msgspec.ValidationError as error:
        raise at(place, error) from None


def read_tools(request: Request, values: dict[str, Any]) -> None:
    """Fill the request's tools and choice from `tools`, `tool_choice` and `parallel_tool_calls`."""
    collected = ToolList()
    plain = True
    for position, value in enumerate(values.get("tools", ())):
        place = f"tools[{position}]"
        tool: _Tool = _decoded(place, _tool, value)
        if tool.type == "function":
            _add_function(collected, tool.function, f"{place}.function")
        else:
            plain = False
            _add_other(collected, tool, place)
    choice = _choice(collected, values.get("tool_choice"))
    choice.parallel = values.get("parallel_tool_calls")
    request.tool_choice = choice
    request.tools = collected.tools
    request.names = collected.names
    request.dropped_tools = collected.dropped
    request.plain_tools = plain and not collected.names


def _add_function(collected: ToolList, function: _Function | None, place: str) -> None:
    if function is None or not function.name:
        raise missing(f"{place}.name")
    collected.function(
        function.name, description=function.description, schema=function.parameters, strict=function.strict
    )


def _add_other(collected: ToolList, tool: _Tool, place: str) -> None:
    if tool.type != "custom":
        collected.hosted(tool.type, place)
    elif tool.custom is None:
        raise missing(f"{place}.custom")
    else:
        collected.custom(tool.custom.name, tool.custom.description, tool.custom.format, f"{place}.custom")


def _choice(collected: ToolList, given: Any) -> ToolChoice:
    if given is None or given in ("auto", "none", "required"):
        return collected.settle(ToolChoice(given or "auto"))
    kind = type_of(given)
    if kind in {"function", "custom"}:
        name = object_of(given.get(kind), f"tool_choice.{kind}").get("name")
        if not isinstance(name, str):
            raise missing(f"tool_choice.{kind}.name")
        return collected.settle(ToolChoice(), name, kind)
    if kind == "allowed_tools":
        allowed = object_of(given.get("allowed_tools"), "tool_choice.allowed_tools")
        tools = list_of(allowed.get("tools"), "tool_choice.allowed_tools.tools")
        entries = [object_of(entry, "tool_choice.allowed_tools.tools") for entry in tools]
        inner = [object_of(entry.get(type_of(entry) or ""), "tool_choice.allowed_tools.tools") for entry in entries]
        collected.allow({str(entry.get("name")) for entry in inner})
        return collected.settle(ToolChoice("required" if allowed.get("mode") == "required" else "auto"))
    raise unsupported("tool_choice", "expected none, auto, required, or the tool to call")


def read_functions(request: Request, values: dict[str, Any]) -> None:
    """The same from the deprecated `functions` and `function_call`; the answer will use `function_call`."""
    if "tools" in values:
        raise invalid("functions", "cannot be given together with `tools`")
    collected = ToolList()
    for position, value in enumerate(values["functions"]):
        place = f"functions[{position}]"
        _add_function(collected, _decoded(place, _function, value), place)
    given = values.get("function_call", "auto")
    if given in ("auto", "none"):
        choice = collected.settle(ToolChoice(given))
    elif isinstance(given, dict) and isinstance(given.get("name"), str):
        choice = collected.settle(ToolChoice(), given["name"])
    else:
        raise invalid("function_call", "expected none, auto or an object with `name`")
    choice.parallel = False
    request.tool_choice = choice
    request.tools = collected.tools
    request.names = collected.names
    request.legacy_functions = True
