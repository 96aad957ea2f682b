"""Between the dialects and the contract filter: what a request needs, what a pool is to a codec, how a no is told."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from backends.contract import PoolContract
from gateway.dialects.counting import TOKENIZE
from gateway.dialects.model import ImagePart, MediaPart, Request, ToolResultPart
from gateway.dialects.target import Target
from gateway.errors import Cause, GatewayError
from policies.enforcement import Verdict
from policies.traits import MEDIA_TOKENS, RequestTraits, bounds, needs

_CAUSES: Final = {
    "context_length_exceeded": Cause.CONTEXT_LENGTH,
    "unsupported_parameter": Cause.UNSUPPORTED_PARAMETER,
    "unsupported_value": Cause.UNSUPPORTED_VALUE,
    "not_found": Cause.NOT_FOUND,
    "model_not_found": Cause.MODEL_NOT_FOUND,
    "pool_held": Cause.OVERLOADED,
}
_MEDIA: Final = frozenset({"image", "video", "audio"})
_MEDIA_PARTS: Final = frozenset({"image_url", "video_url", "audio_url", "input_audio"})
_NOT_OF_THE_REQUEST: Final = frozenset({"not_found", "model_not_found", "pool_held"})  # codes that blame no field
_REASONS: Final = 5  # pools whose reasons a client is told


def requirements(
    asked: Request,
    *,
    lora: str | None = None,
    engine_storage: bool = False,
    priority: bool = False,
) -> RequestTraits:
    """What a decoded request needs of the pool that serves it.

    `engine_storage`: the engine itself has to keep or know responses, because the gateway stores none. `priority`:
    the request has one.
    """
    traits = asked.traits
    media = traits.modalities & _MEDIA
    inline, media_tokens = _media_size(asked) if media else (0, 0)
    least, most = bounds(max(traits.prompt_bytes - inline, 0), media_tokens)
    if asked.engine_path == TOKENIZE:
        least = most = 0  # a count has no window to fit
    effort = traits.effort if isinstance(traits.effort, str) else None  # a float is turned into a name by the codec
    bits = needs(
        modalities=media,
        tools=traits.tools,
        tool_choice=traits.tool_choice,
        output_format=None if traits.format == "text" else traits.format,
        logprobs=traits.logprobs,
        storage=engine_storage,
        stop=traits.stops > 0,
        priority=priority,
        reasoning_off=effort == "none",
        thinking_budget=asked.reasoning.budget is not None,
    )
    return RequestTraits(
        dialect=asked.dialect,
        endpoint=asked.engine_path,
        needs=bits | needs(output_format=traits.grammar) if traits.grammar else bits,
        effort=effort,
        lora=lora,
        top_logprobs=traits.top_logprobs,
        choices=traits.n,
        prompt_min=least,
        prompt_max=most,
        max_output=traits.max_output,
    )


def _media_size(asked: Request) -> tuple[int, int]:
    """Bytes that media take in a request, and how many tokens they can become at most."""
    size = tokens = 0
    for kind, taken in _media_parts(asked):
        size += taken
        tokens += MEDIA_TOKENS * (8 if kind == "video_url" else 1)
    return size, tokens


def _media_parts(asked: Request) -> Iterator[tuple[str, int]]:
    """(type of the Chat part, bytes) of all media."""
    if not asked.turns:
        yield from _chat_media(msgspec.json.decode(asked.raw["messages"]))
    for turn in asked.turns:
        for part in turn.parts:
            for one in part.parts if isinstance(part, ToolResultPart) else (part,):
                if isinstance(one, ImagePart):
                    yield "image_url", len(one.url)
                elif isinstance(one, MediaPart):
                    yield str(one.part["type"]), len(msgspec.json.encode(one.part))


def _chat_media(messages: Iterable[Mapping[str, Any]]) -> Iterator[tuple[str, int]]:
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list) else ():
            if part["type"] in _MEDIA_PARTS:
                yield part["type"], len(msgspec.json.encode(part))


def speaking(target: Target, contract: PoolContract) -> Target:
    """A codec's view of a pool, corrected by what its contract knows; unknown terms leave it as it is."""
    terms = contract.terms
    changes: dict[str, object] = {
        "reasoning_field": terms.reasoning_field or None,
        "efforts": terms.efforts,
        "default_effort": terms.default_effort,
        "reasoning_optional": terms.reasoning_off,
        "stop_scope": _stop_scope(contract),
        "images": None if terms.modalities is None else "image" in terms.modalities,
        "thinking_budget": terms.thinking_budget,
        "window": terms.max_context,
    }
    return replace(target, **{name: value for name, value in changes.items() if value is not None})  # type: ignore[arg-type]


def _stop_scope(contract: PoolContract) -> str | None:
    if contract.terms.reasoning is False:
        return "engine"  # there is nothing but the answer to match
    scope = contract.terms.stop_scope
    return None if scope is None else "engine" if scope == "answer" else "gateway"


def refused(verdict: Verdict, model: str) -> GatewayError:
    """What the client is told when no pool of `model` can serve its request: the field, and every pool's reason."""
    closest = verdict.reason()
    if closest is None:
        raise ValueError("the verdict refuses nothing")
    reasons = "; ".join(str(refusal) for refusal in verdict.refusals[:_REASONS])
    cause = _CAUSES[closest.code]
    asked = "this request" if closest.code in _NOT_OF_THE_REQUEST else f"`{closest.field}` of this request"
    message = f"No pool of `{model}` can serve {asked}: {reasons}."
    return GatewayError(
        cause,
        message,
        param=closest.field,
        numbers=closest.numbers,
        retry_after_s=5.0 if cause is Cause.OVERLOADED else None,
    )
