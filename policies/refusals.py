"""Why a pool cannot serve a request at all, with the client's field named."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import msgspec

from backends import capabilities as can
from backends.capabilities import Capabilities
from policies.fields import ENDPOINT, INPUT, LORA, MAX_OUTPUT, TOP_LOGPROBS, field_of
from policies.traits import RequestTraits

# Bits that no adaptation can make up for, in the order in which they are named.
_HARD: Final[Mapping[int, str]] = {
    can.IMAGE: "image input is not supported",
    can.VIDEO: "video input is not validated",
    can.AUDIO: "audio input is not supported",
    can.TOOLS: "tool calls are not supported",
    can.TOOL_REQUIRED: "a required tool call is not supported",
    can.TOOL_NAMED: "a named tool call is not supported",
    can.JSON_OBJECT: "JSON output is not supported",
    can.JSON_SCHEMA: "output by JSON schema is not supported",
    can.REGEX: "output by regular expression is not supported",
    can.GRAMMAR: "output by grammar is not supported",
    can.LOGPROBS: "log probabilities are not supported",
    can.STORAGE: "responses are not stored",
}
HARD_BITS: Final = sum(_HARD)


class Refusal(msgspec.Struct, frozen=True, gc=False):
    """One pool's no. `rank` orders refusals by how close the pool came; `numbers` is (prompt, window) when the
    prompt alone is too long, else (prompt, output, window).
    """

    pool: str
    field: str
    reason: str
    code: str
    rank: int
    numbers: tuple[int, ...] = ()
    uncertain: bool = False  # the prompt is only estimated: counting it may make it fit

    def __str__(self) -> str:
        return f"{self.pool}: {self.reason}"


def refuse(traits: RequestTraits, pool: Capabilities) -> Refusal | None:
    """Why the pool cannot serve the request, or None when it can (perhaps adapted)."""
    if pool.held:
        return Refusal(pool.pool, "model", "held out: a probe contradicts its declaration", "pool_held", 0)
    if pool.endpoints is not None and traits.endpoint not in pool.endpoints:
        return Refusal(pool.pool, field_of(ENDPOINT, traits.dialect), f"has no {traits.endpoint}", "not_found", 1)
    if traits.lora is not None and pool.loras is not None and traits.lora not in pool.loras:
        return Refusal(pool.pool, field_of(LORA, traits.dialect), f"has no adapter {traits.lora}", "model_not_found", 1)
    return _feature(traits, pool) or _length(traits, pool)


def _feature(traits: RequestTraits, pool: Capabilities) -> Refusal | None:
    missing = traits.needs & ~pool.bits & HARD_BITS
    if missing:
        bit = missing & -missing
        reason = _HARD[bit]
        if bit in (can.IMAGE, can.VIDEO, can.AUDIO) and pool.frontend:
            reason += f" by its {pool.frontend} frontend"
        # More than one thing missing: the pool is further away.
        rank = 3 if missing == bit else 2
        return Refusal(pool.pool, field_of(bit, traits.dialect), reason, _code(bit), rank)
    if traits.top_logprobs > pool.max_logprobs:
        name = field_of(TOP_LOGPROBS, traits.dialect)
        reason = f"gives at most {pool.max_logprobs} log probabilities per token"
        return Refusal(pool.pool, name, reason, "unsupported_value", 3)
    return None


def _code(bit: int) -> str:
    return "unsupported_parameter" if bit in (can.LOGPROBS, can.STORAGE) else "unsupported_value"


def _length(traits: RequestTraits, pool: Capabilities) -> Refusal | None:
    """Prompt and requested output must fit. An estimate that may not fit is refused as uncertain."""
    output = traits.max_output or 1
    if output > pool.max_output:
        name, reason = field_of(MAX_OUTPUT, traits.dialect), f"answers with at most {pool.max_output} tokens"
        return Refusal(pool.pool, name, reason, "unsupported_value", 4)
    if traits.prompt_max + output <= pool.window:
        return None
    uncertain = traits.prompt_min + output <= pool.window
    prompt = traits.prompt_max if traits.prompt_min == traits.prompt_max else traits.prompt_min
    name = field_of(INPUT if prompt >= pool.window else MAX_OUTPUT, traits.dialect)
    sizes = f"{prompt} prompt tokens + {output} output tokens > {pool.window}"
    reason = f"may not fit its context window: {sizes}" if uncertain else f"does not fit its context window: {sizes}"
    # The pool with the largest window came closest.
    rank = 5 + min(pool.window, 1 << 40)
    numbers = (prompt, pool.window) if prompt >= pool.window else (prompt, output, pool.window)
    return Refusal(pool.pool, name, reason, "context_length_exceeded", rank, numbers, uncertain)
