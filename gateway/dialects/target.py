"""What a codec must know of the pool that was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from backends.contracts import EngineFailure, Fault
from gateway.dialects.failures import foreign


class _Error(msgspec.Struct):
    message: str = ""
    type: str | None = None
    code: int | str | None = None


class _Frame(msgspec.Struct):
    error: _Error | str | None = None
    object: str | None = None
    message: str = ""
    code: int | str | None = None


_frames = msgspec.json.Decoder(_Frame)


def frame_failure(payload: bytes) -> EngineFailure | None:
    """Classify a JSON payload that came with status 200: nested and flat error bodies; None when it is no error.

    The engines' own words are not shown to clients: they may name paths and inputs.
    """
    try:
        frame = _frames.decode(payload)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return foreign()
    if isinstance(frame.error, _Error):
        code = frame.error.code
    elif frame.error is not None or frame.object == "error":
        code = frame.code
    else:
        return None
    status = code if isinstance(code, int) else int(code) if isinstance(code, str) and code.isdigit() else 0
    if status in {429, 503}:
        return EngineFailure(Fault.OVERLOADED, "the engine is overloaded", status=status)
    return EngineFailure(Fault.ENGINE, "the engine failed while answering", status=status)


@dataclass(frozen=True, slots=True)
class Target:
    """The chosen pool as a codec sees it, joined with the tenant's wishes. Made by the pipeline, per attempt.

    The defaults describe a reasoning model of the GLM-5.3 family behind an engine that matches stop strings inside
    reasoning, which is the safe assumption for a pool that declares nothing.
    """

    engine: str  # engine kind: vllm | sglang | nim | …
    model: str  # the name the engine serves
    family: str = ""  # sealed reasoning is given back only within one family; "" stands for `model`
    reasoning_field: str = "reasoning_content"  # key of reasoning in the engine's messages and deltas
    efforts: tuple[str, ...] = ("low", "high", "max")  # efforts that are real, weakest first; () passes any on
    default_effort: str | None = None  # sent when the client names none; None sends nothing
    reasoning_optional: bool = False  # reasoning can be switched off (effort `none` is real)
    developer_role: bool = False  # the chat template knows the role `developer`
    stop_scope: Literal["engine", "gateway"] = "gateway"  # `engine`: its stop strings match the answer only
    # How constraints beyond `response_format` are spelled: in vLLM's field, or in SGLang's regex, ebnf, json_schema.
    structured: Literal["fields", "structured_outputs", "none"] = "structured_outputs"
    strict_tools: bool = True  # takes `strict` on a function
    images: bool = True
    window: int | None = None  # tokens of prompt and output together
    thinking_budget: bool = False  # takes thinking_token_budget
    cache_salt: str | None = None  # already derived from tenant and client salt
    messages_show_thinking: Literal["asked", "always"] = "asked"
    responses_reasoning: Literal["summary", "raw", "hidden"] = "summary"
    frame_failure: Callable[[bytes], EngineFailure | None] = frame_failure
