"""The Messages dialect."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from backends.contracts import DialectName
from gateway.dialects import messages_errors
from gateway.dialects.base import Transcoder
from gateway.dialects.effort import validated
from gateway.dialects.engine import Body, gateway_stops
from gateway.dialects.fields import (
    SAMPLING,
    Count,
    beyond,
    check,
    invalid,
    missing,
    read_object,
    session_of,
    table,
    text_of,
    type_of,
    unsupported,
)
from gateway.dialects.ids import Ids
from gateway.dialects.messages_in import MessagesReader
from gateway.dialects.messages_out import MessagesBody, MessagesStream
from gateway.dialects.model import Format, Reasoning, Request, ToolChoice, Traits
from gateway.dialects.registry import DecodeOptions, EngineRequest
from gateway.dialects.rewriting import Encoder, Rewriting
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.dialects.tools import ToolList
from gateway.dialects.turns import engine_messages
from gateway.errors import GatewayError
from gateway.steering import strip_fields

_Object = dict[str, Any]
_FIELDS = table(
    SAMPLING,
    {
        "model": str,
        "messages": list[_Object],
        "max_tokens": Count,
        "system": str | list[_Object] | None,
        "stream": bool | None,
        "stop_sequences": list[str] | None,
        "tools": list[_Object] | None,
        "tool_choice": _Object | None,
        "thinking": _Object | None,
        "output_config": _Object | None,
        "metadata": _Object | None,
        "cache_salt": str | None,
        "mcp_servers": list[_Object] | None,
    },
    {
        "cache_control": Any,
        "service_tier": str | None,
        "inference_geo": Any,
        "speed": Any,
        "betas": Any,
        "diagnostics": Any,
        "anthropic_version": Any,
    },
)
_INSIDE = {  # what is read of these fields
    "thinking": frozenset({"type", "budget_tokens", "display"}),
    "output_config": frozenset({"effort", "format"}),
    "tool_choice": frozenset({"type", "name", "disable_parallel_tool_use"}),
    "metadata": frozenset({"user_id"}),
}
_CONTEXT_BETA = "model-context-window-exceeded"
_MODES = {"auto": "auto", "any": "required", "none": "none"}


class Messages:
    """Anthropic's Messages."""

    name: DialectName = "messages"

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        request = self._decode(body, options, required=("model", "messages", "max_tokens"))
        request.session = request.session or session_of(headers)
        betas = f"{headers.get('anthropic-beta', '')},{bytes(request.raw.get('betas', b'')).decode()}"
        request.context_stop = _CONTEXT_BETA in betas
        return request

    def decode_count(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:  # noqa: ARG002
        """The request of `count_tokens`: the same without `max_tokens`."""
        return self._decode(body, options, required=("model", "messages"))

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """See `Dialect.encode_engine_request`."""
        body = Body(request, target)
        body.set("messages", engine_messages(request.turns, target))
        return body.finish("/v1/chat/completions")

    def transcoder(self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal) -> Transcoder:
        """See `Dialect.transcoder`."""
        family = target.family or target.model

        def sign(reasoning: str) -> str:
            return seal.close(reasoning, family)

        encoder: Encoder = MessagesStream(request, ids, sign) if request.stream else MessagesBody(request, ids, sign)
        return Rewriting(
            encoder,
            request,
            target,
            ids,
            upstream_stream=sent.stream,
            hide_reasoning=sent.hide_reasoning,
            stops=gateway_stops(request, target),
        )

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return messages_errors.encode_error(error, request_id)

    def _decode(self, body: bytes, options: DecodeOptions, required: tuple[str, ...]) -> Request:
        raw = read_object(body)
        stripped = strip_fields(raw, options.grants)
        values, forward, ignored = check(raw, _FIELDS)
        for name in required:
            if name not in values:
                raise missing(name)
        if values.get("mcp_servers"):
            raise unsupported("mcp_servers", "MCP servers are not served")
        request = Request(
            dialect="messages",
            model=values["model"],
            stream=values.get("stream", False),
            traits=Traits(),
            body=body,
            raw=raw,
            forward=forward,
            ignored=[*stripped, *ignored, *beyond(values, _INSIDE)],
            stops=_stops(values.get("stop_sequences", ())),
            max_output=values.get("max_tokens"),
            format=_format(values.get("output_config", {})),
            reasoning=_reasoning(values),
            cache_salt=values.get("cache_salt"),
        )
        _tools(request, values)
        _end_user(request, values.get("metadata", {}))
        self._prompt(request, values, options)
        return request

    def _prompt(self, request: Request, values: dict[str, Any], options: DecodeOptions) -> None:
        messages = values["messages"]
        if not messages:
            raise invalid("messages", "at least one message is required")
        reader = MessagesReader(options.seal)
        if "system" in values:
            reader.system(values["system"])
        for position, message in enumerate(messages):
            place = f"messages.{position}"
            if "content" not in message:
                raise missing(f"{place}.content")
            reader.message(str(message.get("role")), message["content"], place)
        if messages[-1].get("role") == "assistant":
            if options.strict_prefill:
                raise unsupported("messages", "the last message must be the user's: an answer cannot be continued")
            request.ignored.append("prefill")
        request.turns, request.warnings = reader.turns, reader.warnings
        request.referenced = reader.referenced
        request.traits = Traits(
            modalities=frozenset(reader.modalities),
            tools=bool(request.tools),
            tool_choice=request.tool_choice.mode,
            format=request.format.type,
            effort=request.reasoning.effort,
            stops=len(request.stops),
            max_output=request.max_output,
            stream=request.stream,
            prompt_bytes=len(request.body),
        )


def _stops(values: list[str] | tuple[()]) -> tuple[str, ...]:
    for position, stop in enumerate(values):
        if not stop.strip():
            raise invalid(f"stop_sequences.{position}", "each stop sequence must contain non-whitespace")
    return tuple(values)


def _format(config: _Object) -> Format:
    form = config.get("format")
    if form is None:
        return Format()
    if not isinstance(form, dict) or form.get("type") != "json_schema" or not isinstance(form.get("schema"), dict):
        raise invalid("output_config.format", "expected an object of type json_schema with `schema`")
    return Format("json_schema", schema=form["schema"], strict=True)


def _reasoning(values: dict[str, Any]) -> Reasoning:
    thinking, config = values.get("thinking"), values.get("output_config", {})
    effort = config.get("effort")
    if effort is not None:
        validated(effort, "output_config.effort")
    if thinking is None:
        return Reasoning(effort, visible="unasked")
    kind, budget = type_of(thinking), thinking.get("budget_tokens")
    if kind == "disabled":
        return Reasoning("none", visible="none")
    if kind not in {"enabled", "adaptive", "between_tools"}:
        raise invalid("thinking.type", f"{kind!r} is not one of enabled, adaptive, between_tools, disabled")
    if kind == "enabled" and (not isinstance(budget, int) or budget < 1):
        raise invalid("thinking.budget_tokens", "expected a number of tokens")
    if effort is None:
        effort = _effort_of(budget) if kind == "enabled" else "high"
    return Reasoning(effort, budget, omitted=thinking.get("display") == "omitted")


def _effort_of(budget: int) -> str:
    return "low" if budget < 4096 else "high" if budget < 16384 else "max"


def _tools(request: Request, values: dict[str, Any]) -> None:
    collected = ToolList()
    for position, tool in enumerate(values.get("tools", ())):
        _tool(collected, tool, f"tools.{position}")
    given = values.get("tool_choice", {"type": "auto"})
    kind = type_of(given)
    parallel = not given["disable_parallel_tool_use"] if "disable_parallel_tool_use" in given else None
    if kind == "tool":
        choice = collected.settle(ToolChoice(parallel=parallel), str(given.get("name")), "any")
    elif kind in _MODES:
        choice = collected.settle(ToolChoice(_MODES[kind], parallel=parallel))  # type: ignore[arg-type]
    else:
        raise invalid("tool_choice.type", f"{kind!r} is not one of auto, any, tool, none")
    request.tools, request.names, request.dropped_tools = collected.tools, collected.names, collected.dropped
    request.tool_choice = choice


def _tool(collected: ToolList, tool: _Object, place: str) -> None:
    kind, name = tool.get("type"), tool.get("name")
    if kind is not None and not isinstance(kind, str):
        raise invalid(f"{place}.type", "expected a string")
    if kind not in {None, "custom"}:
        collected.hosted(str(kind), place, name=text_of(name, f"{place}.name"))
        return
    schema = tool.get("input_schema")
    if not isinstance(name, str) or not name:
        raise missing(f"{place}.name")
    if not isinstance(schema, dict):
        raise missing(f"{place}.input_schema")
    description = tool.get("description")
    if examples := tool.get("input_examples"):
        description = f"{description or ''}\n\nExamples of input: {json.dumps(examples, ensure_ascii=False)}".strip()
    collected.function(
        name, description=description, schema=schema, strict=tool.get("strict"), defer=bool(tool.get("defer_loading"))
    )


def _end_user(request: Request, metadata: _Object) -> None:
    """`metadata.user_id` may be a JSON string that names the session: a hint for affinity, nothing more."""
    user = metadata.get("user_id")
    if not isinstance(user, str):
        return
    request.end_user = user
    head, found, session = user.rpartition("_session_")
    if found and head:
        request.session = session
        return
    try:
        named = json.loads(user)
    except ValueError:
        return
    if isinstance(named, dict) and isinstance(named.get("session_id"), str):
        request.session = named["session_id"]
