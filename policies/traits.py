"""What one request needs of a pool, in a form that costs nothing to compare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, Literal

import msgspec

from backends import capabilities as can
from backends.contracts import DialectName

CHAT_PATH: Final = "/v1/chat/completions"
ToolChoice = Literal["none", "auto", "required", "named"]

_MODALITIES: Final[Mapping[str, int]] = {"text": 0, "image": can.IMAGE, "video": can.VIDEO, "audio": can.AUDIO}
_CHOICES: Final[Mapping[str, int]] = {
    "none": 0,
    "auto": can.TOOLS,
    "required": can.TOOL_REQUIRED,
    "named": can.TOOL_NAMED,
}
_FORMATS: Final[Mapping[str, int]] = {
    "json_object": can.JSON_OBJECT,
    "json_schema": can.JSON_SCHEMA,
    "regex": can.REGEX,
    "grammar": can.GRAMMAR,
}
MEDIA_TOKENS: Final = 16_384  # no frontend makes more of one image; a video counts as eight
_TEMPLATE_TOKENS: Final = 64  # what a chat template adds, beyond what it takes around each message


class RequestTraits(msgspec.Struct, frozen=True, gc=False):
    """One request as the contract filter sees it. Token counts of the prompt are bounds; equal means counted."""

    dialect: DialectName = "chat"
    endpoint: str = CHAT_PATH  # the engine path that serves it
    needs: int = 0  # bits of `backends.capabilities`: see `needs`
    effort: str | None = None  # as asked; "none" also sets REASONING_OFF in `needs`
    lora: str | None = None
    top_logprobs: int = 0
    choices: int = 1
    prompt_min: int = 0
    prompt_max: int = 0
    max_output: int | None = None

    def counted(self, prompt_tokens: int) -> RequestTraits:
        """The same request once a tokenizer has counted its prompt."""
        return msgspec.structs.replace(self, prompt_min=prompt_tokens, prompt_max=prompt_tokens)


def needs(
    *,
    modalities: Iterable[str] = (),
    tools: bool = False,
    tool_choice: ToolChoice = "auto",
    output_format: str | None = None,
    logprobs: bool = False,
    storage: bool = False,
    stop: bool = False,
    priority: bool = False,
    reasoning_off: bool = False,
    thinking_budget: bool = False,
) -> int:
    """The bits for `RequestTraits.needs`. Raises KeyError for a modality or format that does not exist.

    `storage`: the engine itself has to keep the response (the gateway's own store is off). `stop`: the client sent
    stop strings. `tools`: there are tools; `tool_choice` counts only then.
    """
    bits = _CHOICES[tool_choice] if tools else 0
    for modality in modalities:
        bits |= _MODALITIES[modality]
    if output_format is not None:
        bits |= _FORMATS[output_format]
    return (
        bits
        | logprobs * can.LOGPROBS
        | storage * can.STORAGE
        | stop * can.STOP
        | priority * can.PRIORITY
        | reasoning_off * can.REASONING_OFF
        | thinking_budget * can.THINKING_BUDGET
    )


def bounds(text_bytes: int, media: int = 0) -> tuple[int, int]:
    """(least, most) prompt tokens of `text_bytes` UTF-8 bytes without a tokenizer, and of media with `media` tokens.

    A byte-level tokenizer makes at most one token of a byte, and its longest tokens (runs of spaces) hold some 128:
    with half of that on average no text has fewer than the least.
    """
    return text_bytes // 64, text_bytes + _TEMPLATE_TOKENS + media
