"""The Responses dialect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta, Raw

from backends.contracts import DialectName
from gateway.dialects import openai_errors
from gateway.dialects.chat_fields import read_stops
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
    unsupported,
)
from gateway.dialects.ids import Ids
from gateway.dialects.model import Format, Reasoning, Request, Traits
from gateway.dialects.registry import DecodeOptions, EngineRequest
from gateway.dialects.responses_in import ResponsesReader, normalised
from gateway.dialects.responses_out import ResponsesBody, ResponsesStream
from gateway.dialects.responses_resource import echo
from gateway.dialects.responses_tools import read_tools
from gateway.dialects.rewriting import Rewriting
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.dialects.turns import engine_messages
from gateway.errors import Cause, GatewayError
from gateway.steering import strip_fields

_Object = dict[str, Any]
_FIELDS = table(
    SAMPLING,
    {
        "model": str,
        "input": Any,
        "instructions": str | None,
        "stream": bool | None,
        "tools": list[_Object] | None,
        "tool_choice": Any,
        "parallel_tool_calls": bool | None,
        "text": _Object | None,
        "reasoning": _Object | None,
        "include": list[str] | None,
        "max_output_tokens": Count | None,
        "max_tool_calls": Count | None,
        "top_logprobs": Annotated[int, Meta(ge=0, le=20)] | None,
        "truncation": str | None,
        "stop": str | list[str] | None,
        "store": bool | None,
        "background": bool | None,
        "previous_response_id": str | None,
        "conversation": Any,
        "prompt": Any,
        "cache_salt": str | None,
        "chat_template_kwargs": _Object | None,
    },
    {
        "metadata": _Object | None,
        "user": str | None,
        "safety_identifier": str | None,
        "service_tier": str | None,
        "prompt_cache_key": str | None,
        "prompt_cache_retention": Any,
        "prompt_cache_options": Any,
        "stream_options": _Object | None,
        "client_metadata": Any,
    },
)
_INSIDE = {  # what is read of these fields
    "text": frozenset({"format"}),
    "reasoning": frozenset({"effort", "summary", "generate_summary", "context"}),
    "stream_options": frozenset({"include_obfuscation"}),
}
_ENCRYPTED = "reasoning.encrypted_content"
_LOGPROBS = "message.output_text.logprobs"


class ResponsesTranscoder(Rewriting):
    """A `Transcoder` that also has the final resource, for a store."""

    def __init__(self, encoder: ResponsesStream | ResponsesBody, *args: Any, **options: Any) -> None:
        super().__init__(encoder, *args, **options)
        self._writer = encoder

    @property
    def resource(self) -> dict[str, Any] | None:
        """The final Response resource; None until the answer has ended or failed."""
        return self._writer.resource


class Responses:
    """OpenAI's Responses. Stateless: a store joins earlier turns, and items that are only named, with `extend`."""

    name: DialectName = "responses"

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`. With `options.store`, `previous_response_id` is left to the caller."""
        raw = read_object(body)
        stripped = strip_fields(raw, options.grants)
        values, forward, ignored = check(raw, _FIELDS)
        _refuse(values, options)
        include = values.get("include", ())
        if _LOGPROBS in include or values.get("top_logprobs"):
            forward |= {"logprobs": Raw(b"true"), "top_logprobs": raw.get("top_logprobs", Raw(b"0"))}
        store = options.store and values.get("store", True)
        items = normalised(values.get("input", []))
        request = Request(
            dialect="responses",
            model=values["model"],
            stream=values.get("stream", False),
            traits=Traits(),
            body=body,
            raw=raw,
            forward=forward,
            ignored=[*stripped, *ignored, *_without_effect(values)],
            stops=read_stops(values.get("stop")),
            max_output=values.get("max_output_tokens"),
            format=_format(values.get("text", {})),
            reasoning=_reasoning(values, encrypted=_ENCRYPTED in include or not store),
            template_kwargs=values.get("chat_template_kwargs"),
            echo=echo(values, store=store),
            items=items,
            previous_response_id=values.get("previous_response_id"),
            store=store,
            background=values.get("background", False),
            referring=options.store and any(item.get("type") == "item_reference" for item in items),
            cache_salt=values.get("cache_salt"),
            cache_key=values.get("prompt_cache_key"),
            session=session_of(headers),
            end_user=values.get("user") or values.get("safety_identifier"),
        )
        if not request.referring:
            self._prompt(request, values, options.seal, [])
        return request

    def extend(self, request: Request, previous: list[dict[str, Any]], options: DecodeOptions) -> None:
        """Put the items of earlier turns (input and output, oldest first) before the request's own."""
        values, _, _ = check(request.raw, _FIELDS)
        self._prompt(request, values, options.seal, previous)

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """See `Dialect.encode_engine_request`."""
        body = Body(request, target)
        body.set("messages", engine_messages(request.turns, target))
        return body.finish("/v1/chat/completions")

    def transcoder(
        self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal
    ) -> ResponsesTranscoder:
        """See `Dialect.transcoder`."""
        family = target.family or target.model
        # Reasoning that is not shown must be in what is stored all the same, or the next turn would lack it.
        sealed = request.reasoning.encrypted or (request.store and target.responses_reasoning == "hidden")
        sealer = (lambda text: seal.close(text, family)) if sealed else None
        stream = ResponsesStream(request, ids, target.responses_reasoning, sealer)
        return ResponsesTranscoder(
            stream if request.stream else ResponsesBody(stream),
            request,
            target,
            ids,
            upstream_stream=sent.stream,
            hide_reasoning=sent.hide_reasoning,
            stops=gateway_stops(request, target),
        )

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return openai_errors.encode_error(error, request_id)

    def _prompt(
        self, request: Request, values: dict[str, Any], seal: Seal | None, previous: list[dict[str, Any]]
    ) -> None:
        reader = ResponsesReader(seal)
        if values.get("instructions"):
            reader.instructions(values["instructions"])
        reader.items(previous, "previous_response_id")
        reader.items(request.items)
        read_tools(request, values, reader.tools)
        request.turns, request.warnings = reader.turns, reader.warnings
        request.traits = Traits(
            modalities=frozenset(reader.modalities),
            tools=bool(request.tools),
            tool_choice=request.tool_choice.mode,
            format=request.format.type,
            logprobs="logprobs" in request.forward,
            top_logprobs=values.get("top_logprobs", 0),
            effort=request.reasoning.effort,
            stops=len(request.stops),
            max_output=request.max_output,
            stream=request.stream,
            prompt_bytes=len(request.body),
        )


def _refuse(values: dict[str, Any], options: DecodeOptions) -> None:
    if "model" not in values:
        raise missing("model")
    for name in ("conversation", "prompt"):
        if name in values:
            raise GatewayError(Cause.UNSUPPORTED_PARAMETER, f"{name} is not served", param=name)
    if values.get("background") and not options.store:
        raise GatewayError(Cause.UNSUPPORTED_PARAMETER, "background needs a response store", param="background")
    previous = values.get("previous_response_id")
    if previous is not None and not options.store:
        raise previous_not_found(previous)
    if "input" not in values and previous is None:
        raise missing("input")
    if values.get("truncation", "disabled") not in {"auto", "disabled"}:
        raise invalid("truncation", "expected auto or disabled")


def previous_not_found(response_id: str) -> GatewayError:
    """The error for a `previous_response_id` that names nothing."""
    return GatewayError(
        Cause.BAD_REQUEST,
        f"Previous response with id {response_id!r} not found.",
        param="previous_response_id",
        code="previous_response_not_found",
    )


def _without_effect(values: dict[str, Any]) -> list[str]:
    names = []
    if values.get("truncation") == "auto":
        names.append("truncation")
    if "max_tool_calls" in values:
        names.append("max_tool_calls")
    served = (_ENCRYPTED, _LOGPROBS)
    names += [f"include.{name}" for name in values.get("include", ()) if name not in served]
    return names + beyond(values, _INSIDE)


def _format(text: _Object) -> Format:
    form = text.get("format") or {"type": "text"}
    kind = form.get("type") if isinstance(form, dict) else None
    if kind in ("text", "json_object"):
        return Format(kind)
    if kind != "json_schema":
        raise unsupported("text.format.type", f"{kind!r} is not one of text, json_object, json_schema")
    if not isinstance(form.get("schema"), dict):
        raise missing("text.format.schema")
    return Format(
        "json_schema", str(form.get("name") or "response"), form["schema"], form.get("strict"), form.get("description")
    )


def _reasoning(values: dict[str, Any], *, encrypted: bool) -> Reasoning:
    given = values.get("reasoning", {})
    effort = given.get("effort")
    if effort is not None:
        validated(effort, "reasoning.effort")
    clear = True if given.get("context") == "current_turn" else None
    return Reasoning(effort, encrypted=encrypted, clear=clear)
