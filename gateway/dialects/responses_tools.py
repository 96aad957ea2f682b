"""Tools of a Responses request: flat functions, custom tools, namespaces, and what servers would run."""

from __future__ import annotations

from typing import Any

from gateway.dialects.fields import invalid, list_of, missing, object_of, text_of, type_of, unsupported
from gateway.dialects.model import Request, ToolChoice
from gateway.dialects.tools import ToolList

Item = dict[str, Any]


def read_tools(request: Request, values: dict[str, Any], additional: list[Item]) -> None:
    """Fill the request's tools and choice."""
    collected = ToolList()
    for position, tool in enumerate([*values.get("tools", ()), *additional]):
        place = f"tools[{position}]"
        if not isinstance(tool, dict) or not isinstance(tool.get("type"), str):
            raise missing(f"{place}.type")
        _add(collected, tool, place)
    choice = _choice(collected, values.get("tool_choice"))
    choice.parallel = values.get("parallel_tool_calls")
    request.tool_choice = choice
    request.tools, request.names, request.dropped_tools = collected.tools, collected.names, collected.dropped


def _add(collected: ToolList, tool: Item, place: str, namespace: str | None = None) -> None:
    kind = tool["type"]
    if kind == "function":
        _function(collected, tool, place, namespace)
    elif kind == "custom":
        form = object_of(tool.get("format"), f"{place}.format")
        collected.custom(_name(tool, place), _description(tool, place), form, place, namespace)
    elif kind == "namespace":
        for position, member in enumerate(list_of(tool.get("tools"), f"{place}.tools")):
            inner = f"{place}.tools[{position}]"
            if not isinstance(member, dict) or not isinstance(member.get("type"), str):
                raise missing(f"{inner}.type")
            _add(collected, member, inner, _name(tool, place))
    else:
        collected.hosted(
            kind, place, name=text_of(tool.get("name"), f"{place}.name"), with_data=bool(tool.get("vector_store_ids"))
        )


def _name(tool: Item, place: str) -> str:
    name = tool.get("name")
    if not isinstance(name, str) or not name:
        raise missing(f"{place}.name")
    return name


def _description(tool: Item, place: str) -> str | None:
    return text_of(tool.get("description"), f"{place}.description")


def _function(collected: ToolList, tool: Item, place: str, namespace: str | None) -> None:
    schema = tool.get("parameters")
    if schema is not None and not isinstance(schema, dict):
        raise invalid(f"{place}.parameters", "expected an object")
    collected.function(
        _name(tool, place),
        description=_description(tool, place),
        schema=schema,
        strict=tool.get("strict"),
        namespace=namespace,
    )


def _choice(collected: ToolList, given: Any) -> ToolChoice:
    if given is None or given in ("auto", "none", "required"):
        return collected.settle(ToolChoice(given or "auto"))
    kind = type_of(given)
    if kind in {"function", "custom"}:
        return collected.settle(ToolChoice(), _name(given, "tool_choice"), kind)
    if kind == "allowed_tools":
        tools = list_of(given.get("tools"), "tool_choice.tools")
        collected.allow({str(entry.get("name")) for entry in tools if isinstance(entry, dict)})
        return collected.settle(ToolChoice("required" if given.get("mode") == "required" else "auto"))
    if isinstance(kind, str):
        return collected.settle(ToolChoice(), kind)
    raise unsupported("tool_choice", "expected none, auto, required, or the tool to call")
