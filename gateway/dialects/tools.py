"""Tools between dialects and engines: every callable tool becomes a function with a name engines take, and back."""

from __future__ import annotations

import hashlib
import re
from typing import Any, Literal

import msgspec

from gateway.dialects.fields import invalid, object_of
from gateway.dialects.model import Tool, ToolChoice
from gateway.errors import Cause, GatewayError

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])
_KEPT = 55  # of a long name, before "_" and 8 hex digits
_INPUT = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The tool's input, verbatim."}},
    "required": ["input"],
    "additionalProperties": False,
}
# What every engine's grammars know of JSON Schema.
_PLAIN = frozenset(
    {"type", "properties", "required", "items", "additionalProperties", "anyOf", "enum", "const", "minLength",
     "maxLength", "title", "description", "default", "examples", "$schema"}
)  # fmt: skip
_INSIDE = {"object": "properties", "array": "items"}
# Dropping access to data without a word would make the answer a lie.
_NEVER_DROPPED = {"mcp", "mcp_toolset"}


class Origin(msgspec.Struct, frozen=True):
    """The client's tool behind an engine name."""

    name: str
    kind: Literal["function", "custom"] = "function"
    namespace: str | None = None


def engine_name(name: str, namespace: str | None = None) -> str:
    """`name`, or `namespace__name`, in at most 64 of the characters engines take."""
    full = f"{namespace}__{name}" if namespace else name
    if _NAME.fullmatch(full):
        return full
    digest = hashlib.sha256(full.encode()).hexdigest()[:8]
    return f"{_OTHER.sub('_', full)[:_KEPT]}_{digest}"


class ToolList:
    """Collects the tools of one request: those for the engine, the way back, and what was dropped."""

    def __init__(self) -> None:
        self.tools: list[Tool] = []
        self.names: dict[str, Origin] = {}  # only tools whose engine form differs from the client's
        self.dropped: list[str] = []
        self._hosted: dict[str, str] = {}  # type or name of a dropped tool -> its place

    def function(
        self,
        name: str,
        *,
        description: str | None,
        schema: Any,
        strict: bool | None,
        namespace: str | None = None,
        defer: bool = False,
    ) -> None:
        """A function the client runs."""
        known = engine_name(name, namespace)
        if known != name:
            self.names[known] = Origin(name, "function", namespace)
        schema = schema or {"type": "object", "properties": {}}
        if isinstance(schema, dict) and "type" not in schema:
            schema = {"type": "object"} | schema
        self.tools.append(Tool(known, description, schema, strict, defer))

    def custom(
        self, name: str, description: str | None, form: dict[str, Any], place: str, namespace: str | None = None
    ) -> None:
        """A free-text tool: a function with the one argument `input`; its grammar is told in the description."""
        known = engine_name(name, namespace)
        self.names[known] = Origin(name, "custom", namespace)
        grammar = object_of(
            form.get("grammar", form), f"{place}.format.grammar"
        )  # Chat nests what Responses writes flat
        text = description or ""
        if form.get("type") == "grammar" and grammar.get("definition"):
            syntax = grammar.get("syntax", "")
            text += f"\n\nThe input must follow this {syntax} grammar:\n{grammar['definition']}"
        self.tools.append(Tool(known, text.strip() or None, _INPUT))

    def hosted(self, kind: str, place: str, *, name: str | None = None, with_data: bool = False) -> None:
        """A tool that some server would run. The gateway runs none: dropped, or refused where that would mislead."""
        if kind in _NEVER_DROPPED or with_data:
            raise GatewayError(Cause.UNSUPPORTED_TOOL, f"{place}: tools of type {kind!r} are not served", param=place)
        self.dropped.append(name or kind)
        self._hosted |= {kind: place, (name or kind): place}

    def settle(self, choice: ToolChoice, forced: str | None = None, kind: str = "function") -> ToolChoice:
        """Check a choice against the tools. `forced` is the client's name of the tool that must be called.

        Raises GatewayError when the choice forces a tool that is not there or was dropped.
        """
        if forced is not None:
            return self._named(choice, forced, kind)
        if choice.mode == "required" and not self.tools:
            if self._hosted:
                place = next(iter(self._hosted.values()))
                raise GatewayError(Cause.UNSUPPORTED_TOOL, f"{place}: no tool that can be called is left", param=place)
            raise invalid("tool_choice", "a tool is required, but there are no tools")
        return choice

    def _named(self, choice: ToolChoice, forced: str, kind: str) -> ToolChoice:
        for tool in self.tools:
            origin = self.names.get(tool.name, Origin(tool.name))
            if forced in {origin.name, tool.name} and kind in {origin.kind, "any"}:
                return ToolChoice("named", tool.name, choice.parallel)
        if forced in self._hosted:
            place = self._hosted[forced]
            raise GatewayError(Cause.UNSUPPORTED_TOOL, f"{place}: {forced!r} cannot be called here", param=place)
        raise invalid("tool_choice", f"there is no tool {forced!r}")

    def allow(self, names: set[str]) -> None:
        """Keep only the tools with these client names (Responses' and Chat's `allowed_tools`)."""
        self.tools = [t for t in self.tools if self.names.get(t.name, Origin(t.name)).name in names]


def engine_tools(tools: list[Tool], referenced: set[str], *, strict: bool) -> list[dict[str, Any]]:
    """The tools as Chat spells them. Deferred tools stay hidden until the history refers to them."""
    return [
        {"type": "function", "function": _function(tool, strict=strict)}
        for tool in tools
        if not tool.defer or tool.name in referenced
    ]


def _function(tool: Tool, *, strict: bool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description is not None:
        function["description"] = tool.description
    function["parameters"] = tool.schema
    if tool.strict is not None and strict:
        function["strict"] = tool.strict
    return function


def may_enforce(tool: Tool) -> bool:
    """Whether a forced call of a tool that is not strict can be held to its schema.

    Engines let the arguments of such a call be any JSON, `13` included, and hold only strict ones to their schema.
    Grammars do not know all of JSON Schema, so a schema with anything unusual in it is left alone.
    """
    schema = tool.schema
    return not tool.strict and isinstance(schema, dict) and schema.get("type") == "object" and _plain(schema)


def _plain(schema: Any) -> bool:
    """Whether a grammar can stand for it. Objects and arrays must say what is in them: strict ones have no more."""
    if not isinstance(schema, dict):
        return isinstance(schema, bool)
    kind = schema.get("type", "")
    if not schema.keys() <= _PLAIN or not isinstance(kind, str) or (kind in _INSIDE and not schema.get(_INSIDE[kind])):
        return False
    properties, choices = schema.get("properties", {}), schema.get("anyOf", [])
    if not isinstance(properties, dict) or not isinstance(choices, list):
        return False
    inner = [schema[key] for key in ("items", "additionalProperties") if key in schema]
    return all(map(_plain, [*properties.values(), *choices, *inner]))


def engine_choice(choice: ToolChoice) -> Any:
    """`tool_choice` as Chat spells it."""
    if choice.mode == "named":
        return {"type": "function", "function": {"name": choice.name}}
    return choice.mode


def unwrap(arguments: str) -> str:
    """The text of a custom tool's call; arguments that are not the agreed object are given as they are."""
    try:
        value = msgspec.json.decode(arguments)
    except msgspec.DecodeError:
        return arguments
    text = value.get("input") if isinstance(value, dict) else None
    return text if isinstance(text, str) else arguments


def is_object(arguments: str) -> bool:
    """Whether arguments are a JSON object."""
    try:
        _object.decode(arguments)
    except msgspec.DecodeError:  # a ValidationError too
        return False
    return True


def strict_names(tools: list[Tool]) -> frozenset[str]:
    """Engine names of the tools whose arguments were promised to fit their schema."""
    return frozenset(tool.name for tool in tools if tool.strict)


def object_arguments(arguments: str) -> dict[str, Any]:
    """Arguments as an object. What is none is kept under `_raw`: chat templates fail on anything else."""
    try:
        value = msgspec.json.decode(arguments) if arguments else {}
    except msgspec.DecodeError:
        value = arguments
    return value if isinstance(value, dict) else {"_raw": arguments}
