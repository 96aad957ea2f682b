"""The Completions dialect: always passed through; a raw prompt has no turns that could be translated."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from backends.contracts import DialectName
from gateway.dialects import openai_errors
from gateway.dialects.base import Transcoder
from gateway.dialects.chat_fields import (
    COMPLETIONS,
    INSIDE,
    check_choices,
    constraint,
    guided,
    read_include_usage,
    read_stops,
)
from gateway.dialects.engine import Body
from gateway.dialects.fields import beyond, check, missing, read, read_object, session_of
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request, Traits
from gateway.dialects.passbody import PassBody
from gateway.dialects.passthrough import PassThrough
from gateway.dialects.registry import DecodeOptions, EngineRequest
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import GatewayError
from gateway.steering import strip_fields

_prompt = msgspec.json.Decoder(str | list[str | int | list[int]])


class Completions:
    """Completions. Stop strings go to the engine: a raw prompt's answer is not parsed for reasoning."""

    name: DialectName = "completions"

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        raw = read_object(body)
        stripped = strip_fields(raw, options.grants)
        values, forward, ignored = check(raw, COMPLETIONS)
        for name in ("model", "prompt"):
            if name not in values:
                raise missing(name)
        prompt = read("prompt", _prompt.decode, raw["prompt"])
        n = check_choices(values, options.choices)
        structured = guided(values)
        if structured:
            forward["structured_outputs"] = msgspec.Raw(msgspec.json.encode(structured))
        stops = read_stops(values.get("stop"))
        return Request(
            dialect="completions",
            engine_path="/v1/completions",
            model=values["model"],
            stream=values.get("stream", False),
            traits=Traits(
                grammar=constraint(values),
                logprobs=values.get("logprobs") is not None,
                top_logprobs=values.get("logprobs", 0),
                n=n * _prompts(prompt),
                stops=len(stops),
                max_output=values.get("max_tokens"),
                stream=values.get("stream", False),
                prompt_bytes=len(body),
            ),
            body=msgspec.json.encode(raw) if stripped else body,
            raw=raw,
            forward=forward,
            ignored=[*stripped, *ignored, *beyond(values, INSIDE)],
            include_usage=read_include_usage(values),
            stops=stops,
            max_output=values.get("max_tokens"),
            cache_salt=values.get("cache_salt"),
            cache_key=values.get("prompt_cache_key"),
            session=session_of(headers),
            end_user=values.get("user"),
        )

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """See `Dialect.encode_engine_request`."""
        body = Body(request, target)
        if request.stops:
            body.set("stop", list(request.stops) if len(request.stops) > 1 else request.stops[0])
        if request.max_output is not None:
            body.set("max_tokens", request.max_output)
        if target.cache_salt is not None:
            body.set("cache_salt", target.cache_salt)
        return body.written("/v1/completions")

    def transcoder(self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal) -> Transcoder:  # noqa: ARG002
        """See `Dialect.transcoder`."""
        if not request.stream:
            return PassBody(ids, model=request.model, chat=False, frame_failure=target.frame_failure)
        return PassThrough(
            ids,
            model=request.model,
            chat=False,
            choices=request.traits.n,
            include_usage=request.include_usage,
            tools=False,
            rename_reasoning=False,
            frame_failure=target.frame_failure,
        )

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return openai_errors.encode_error(error, request_id)


def _prompts(prompt: str | list[str | int | list[int]]) -> int:
    """How many prompts: a list of token ids is one, a list of texts or of lists is many."""
    if isinstance(prompt, str) or not prompt or isinstance(prompt[0], int):
        return 1
    return len(prompt)
