"""Between the dialects and the contract filter: what a request needs, what a pool is to a codec, how a no is told."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from backends.contract import PoolContract
from gateway.dialects.model import Request
from gateway.dialects.target import Target
from gateway.errors import Cause, GatewayError
from policies.enforcement import Verdict
from policies.traits import RequestTraits, bounds, needs

_CAUSES: Final = {
    "context_length_exceeded": Cause.CONTEXT_LENGTH,
    "unsupported_parameter": Cause.UNSUPPORTED_PARAMETER,
    "unsupported_value": Cause.UNSUPPORTED_VALUE,
    "not_found": Cause.NOT_FOUND,
    "model_not_found": Cause.MODEL_NOT_FOUND,
    "pool_held": Cause.OVERLOADED,
}
_MEDIA: Final = frozenset({"image", "video", "audio"})
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
    the request has one. Media make the size of the body say nothing of the prompt, which then is not bounded.
    """
    traits = asked.traits
    media = traits.modalities & _MEDIA
    least, most = (0, 0) if media else bounds(traits.prompt_bytes)
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
        needs=bits | needs(output_format=traits.grammar),
        effort=effort,
        lora=lora,
        top_logprobs=traits.top_logprobs,
        choices=traits.n,
        prompt_min=least,
        prompt_max=most,
        max_output=traits.max_output,
    )


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
    message = f"No pool of `{model}` can serve this request: {reasons}."
    return GatewayError(
        cause,
        message,
        param=closest.field,
        numbers=closest.numbers,
        retry_after_s=5.0 if cause is Cause.OVERLOADED else None,
    )
