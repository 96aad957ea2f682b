"""The Chat dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import Raw

from backends.contracts import DialectName
from gateway.dialects import openai_errors
from gateway.dialects.base import Transcoder
from gateway.dialects.chat_fields import (
    CHAT,
    INSIDE,
    check_choices,
    constraint,
    guided,
    read_format,
    read_include_usage,
    read_reasoning,
    read_stops,
)
from gateway.dialects.chat_messages import edit, scan
from gateway.dialects.chat_out import ChatBody, ChatStream
from gateway.dialects.chat_tools import read_functions, read_tools
from gateway.dialects.direct import encode_direct, read_direct
from gateway.dialects.effort import validated
from gateway.dialects.engine import Body, gateway_stops
from gateway.dialects.fields import beyond, check, missing, read_object, session_of, unsupported
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request, Traits
from gateway.dialects.passbody import PassBody
from gateway.dialects.passthrough import PassThrough
from gateway.dialects.registry import DecodeOptions, EngineRequest
from gateway.dialects.rewriting import Encoder, Rewriting
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.dialects.tools import strict_names
from gateway.errors import GatewayError
from gateway.steering import strip_fields

_NO_GRANTS = DecodeOptions()


class Chat:
    """Chat Completions. What needs no translation keeps its bytes, in both directions."""

    name: DialectName = "chat"

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        request = read_direct(body) or self._decode(body, options)
        request.session = session_of(headers)
        return request

    def _decode(self, body: bytes, options: DecodeOptions) -> Request:
        raw = read_object(body)
        stripped = strip_fields(raw, options.grants)
        values, forward, ignored = check(raw, CHAT)
        for name in ("model", "messages"):
            if name not in values:
                raise missing(name)
        if "audio" in values.get("modalities", ()):
            raise unsupported("modalities", "only text is served")
        found = scan(raw["messages"], body)
        request = Request(
            dialect="chat",
            model=values["model"],
            stream=values.get("stream", False),
            traits=Traits(),
            body=msgspec.json.encode(raw) if stripped else body,
            raw=raw,
            forward=forward,
            ignored=[*stripped, *ignored, *beyond(values, INSIDE)],
            include_usage=read_include_usage(values),
            stops=read_stops(values.get("stop")),
            max_output=values.get("max_completion_tokens", values.get("max_tokens")),
            format=read_format(values.get("response_format")),
            cache_salt=values.get("cache_salt"),
            cache_key=values.get("prompt_cache_key"),
            end_user=values.get("user") or values.get("safety_identifier"),
        )
        request.reasoning, request.template_kwargs = read_reasoning(values)
        if request.reasoning.effort is not None:
            validated(request.reasoning.effort, "reasoning_effort")
        self._read_tools(request, values)
        request.messages = found
        request.traits = self._traits(request, values, found.modalities, options)
        return request

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """See `Dialect.encode_engine_request`."""
        if request.direct:
            direct = encode_direct(request, target)
            if direct is not None:
                return direct
            effort = request.reasoning.effort
            request = self._decode(request.body, _NO_GRANTS)  # a direct request holds nothing that needs one
            request.reasoning.effort = effort
        body = Body(request, target)
        found = request.messages
        field = target.reasoning_field
        renamed = found.reasoning and field != "reasoning"
        if found.edits or renamed or (found.developer and not target.developer_role):
            body.set("messages", edit(request.raw["messages"], developer=target.developer_role, reasoning_field=field))
        return body.finish("/v1/chat/completions")

    def transcoder(self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal) -> Transcoder:  # noqa: ARG002
        """See `Dialect.transcoder`."""
        if request.direct and not request.stream and not sent.hide_reasoning:
            return PassBody(ids, model=request.model, chat=True, frame_failure=target.frame_failure)
        stops = gateway_stops(request, target)
        if stops or sent.hide_reasoning or request.names or request.legacy_functions:
            encoder: Encoder = ChatStream(request, ids) if request.stream else ChatBody(request, ids)
            return Rewriting(
                encoder,
                request,
                target,
                ids,
                upstream_stream=sent.stream,
                hide_reasoning=sent.hide_reasoning,
                stops=stops,
            )
        if not request.stream:
            return PassBody(
                ids,
                model=request.model,
                chat=True,
                strict=strict_names(request.tools),
                frame_failure=target.frame_failure,
            )
        return PassThrough(
            ids,
            model=request.model,
            chat=True,
            choices=request.traits.n,
            include_usage=request.include_usage,
            tools=request.traits.tools,
            strict=strict_names(request.tools),
            rename_reasoning=target.reasoning_field == "reasoning",
            frame_failure=target.frame_failure,
        )

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return openai_errors.encode_error(error, request_id)

    def _read_tools(self, request: Request, values: dict[str, Any]) -> None:
        if "functions" in values:
            read_functions(request, values)
        else:
            read_tools(request, values)

    def _traits(self, request: Request, values: dict[str, Any], modalities: set[str], options: DecodeOptions) -> Traits:
        structured = guided(values)
        if structured:
            request.forward["structured_outputs"] = Raw(msgspec.json.encode(structured))
        return Traits(
            modalities=frozenset(modalities),
            tools=bool(request.tools),
            tool_choice=request.tool_choice.mode,
            format=request.format.type,
            grammar=constraint(values),
            logprobs=bool(values.get("logprobs")),
            top_logprobs=values.get("top_logprobs", 0),
            n=check_choices(values, options.choices),
            effort=request.reasoning.effort,
            stops=len(request.stops),
            max_output=request.max_output,
            stream=request.stream,
            prompt_bytes=len(request.body),
        )
