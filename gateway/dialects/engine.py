"""The engine's Chat body: canonical request and target joined, with the client's own bytes wherever they will do."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.effort import Choice, choose
from gateway.dialects.fields import header_list, unsupported
from gateway.dialects.grammar import engine_grammar
from gateway.dialects.model import Request
from gateway.dialects.registry import EngineRequest
from gateway.dialects.target import Target
from gateway.dialects.tools import engine_choice, engine_tools, may_enforce
from policies.routing.priority import engine_priority

_encode = msgspec.json.encode
_decode = msgspec.json.decode


def gateway_stops(request: Request, target: Target) -> tuple[str, ...]:
    """The stop strings that the gateway must match on the answer; () when the engine may."""
    return request.stops if target.stop_scope == "gateway" else ()


def client_headers(request: Request, effort: Choice) -> dict[str, str]:
    """What the client is told about its request."""
    headers = {}
    if effort.header is not None:
        headers["x-gateway-reasoning-effort"] = effort.header
    if request.ignored:
        headers["x-gateway-ignored-params"] = header_list(request.ignored)
    if request.dropped_tools:
        headers["x-gateway-dropped-tools"] = header_list(request.dropped_tools)
    return headers


class Body:
    """Collects the fields of one engine body. A value equal to the client's keeps the client's bytes."""

    def __init__(self, request: Request, target: Target) -> None:
        self._request = request
        self._target = target
        self._client = request.raw if request.dialect in {"chat", "completions"} else {}
        self._fields: dict[str, Raw] = {}
        self._adapted: list[str] = []
        self._effort = choose(request.reasoning.effort, target)
        self._upstream_stream = request.stream
        for name in ("model", "messages", "prompt"):
            if name in self._client:
                self._fields[name] = self._client[name]
        self._fields |= request.forward
        self.set("model", target.model)
        if (given := request.forward.get("priority")) is not None:
            self.set("priority", engine_priority(_decode(given), lower_first=target.engine != "sglang"))

    def set(self, name: str, value: Any) -> None:
        """Set a field, to bytes (`Raw`) or a value."""
        if isinstance(value, Raw):
            self._fields[name] = value
            return
        given = self._client.get(name)
        if given is None or _decode(given) != value:
            given = Raw(_encode(value))
        self._fields[name] = given

    def finish(self, path: str) -> EngineRequest:
        """All that is not messages, then the whole."""
        self._tools()
        self._format()
        self._reasoning()
        self._limits()
        self._stops()
        if self._target.cache_salt is not None:
            self.set("cache_salt", self._target.cache_salt)
        return self.written(path)

    def written(self, path: str) -> EngineRequest:
        """The engine request with the fields set so far, and what streams need."""
        self._stream()
        fields, client = self._fields, self._client
        same = len(fields) == len(client) and all(client.get(name) is value for name, value in fields.items())
        return EngineRequest(
            path=path,
            body=self._request.body if same else _encode(fields),
            stream=self._upstream_stream,
            effort=None if self._effort.effective is None else str(self._effort.effective),
            hide_reasoning=self._effort.hide or self._hidden(),
            adapted=tuple(self._adapted),
            headers=client_headers(self._request, self._effort),
        )

    def _hidden(self) -> bool:
        visible = self._request.reasoning.visible
        return visible == "none" or (visible == "unasked" and self._target.messages_show_thinking == "asked")

    def _tools(self) -> None:
        request = self._request
        tools = request.tools
        if not tools:
            self._fields.pop("parallel_tool_calls", None)
            return
        choice, takes_strict = request.tool_choice, self._target.strict_tools
        enforced = takes_strict and choice.mode in {"required", "named"} and any(map(may_enforce, tools))
        if enforced:
            tools = [msgspec.structs.replace(tool, strict=True) if may_enforce(tool) else tool for tool in tools]
            self._adapted.append("tools.enforced")
        elif not takes_strict and any(tool.strict for tool in tools):
            self._adapted.append("tools.strict")
        if request.plain_tools and not enforced and (takes_strict or all(tool.strict is None for tool in tools)):
            self._fields["tools"] = self._client["tools"]
        else:
            self.set("tools", engine_tools(tools, request.referenced, strict=takes_strict))
        if choice.mode != "auto" or "tool_choice" in self._client:
            self.set("tool_choice", engine_choice(choice))
        if choice.parallel is not None:
            self.set("parallel_tool_calls", choice.parallel)

    def _format(self) -> None:
        form = self._request.format
        if form.type == "text":
            return
        if self._target.structured == "none":
            raise unsupported("response_format", "this model does not serve structured output")
        if "response_format" in self._client:
            self._fields["response_format"] = self._client["response_format"]
        elif form.type == "json_object":
            self.set("response_format", {"type": "json_object"})
        else:
            inner = {"name": form.name, "schema": form.schema, "strict": form.strict, "description": form.description}
            given = {key: value for key, value in inner.items() if value is not None}
            self.set("response_format", {"type": "json_schema", "json_schema": given})

    def _reasoning(self) -> None:
        request, target = self._request, self._target
        if self._effort.effective is not None:
            self.set("reasoning_effort", self._effort.effective)
        kwargs = request.template_kwargs or {}
        if request.reasoning.clear is not None:
            kwargs = kwargs | {"clear_thinking": request.reasoning.clear}
        if kwargs:
            self.set("chat_template_kwargs", kwargs)
        if request.reasoning.budget is not None and target.thinking_budget:
            self.set("thinking_token_budget", request.reasoning.budget)

    def _limits(self) -> None:
        for name in ("max_completion_tokens", "max_tokens"):
            if name in self._client and bytes(self._client[name]) != b"null":
                self._fields[name] = self._client[name]
                return
        if self._request.max_output is not None:
            self.set("max_completion_tokens", self._request.max_output)

    def _stops(self) -> None:
        if not self._request.stops:
            return
        if self._target.stop_scope == "engine":
            self.set("stop", list(self._request.stops))
        else:
            self._upstream_stream = True  # so that the engine can be stopped in the middle

    def _stream(self) -> None:
        engine_grammar(self._fields, self._target)
        if not self._upstream_stream:
            if "stream" in self._client:
                self.set("stream", False)
            return
        self.set("stream", True)
        options: dict[str, Any] = {"include_usage": True}
        if self._request.stops and self._target.stop_scope == "gateway":
            options["continuous_usage_stats"] = True  # the count up to the match, when the engine is stopped there
        self.set("stream_options", options)
