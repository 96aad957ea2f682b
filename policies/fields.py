"""How each dialect spells the fields that the contract filter speaks of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from backends import capabilities as can
from backends.contracts import DialectName

# Subjects that are no capability bits; negative, so that they cannot meet one.
EFFORT: Final = -1
INPUT: Final = -2
MAX_OUTPUT: Final = -3
TOP_LOGPROBS: Final = -4
LORA: Final = -5
ENDPOINT: Final = -6

_ANY: Final[Mapping[int, str]] = {
    can.TOOLS: "tools",
    can.TOOL_REQUIRED: "tool_choice",
    can.TOOL_NAMED: "tool_choice",
    can.JSON_OBJECT: "response_format",
    can.JSON_SCHEMA: "response_format",
    can.REGEX: "regex",
    can.GRAMMAR: "grammar",
    can.LOGPROBS: "logprobs",
    can.STORAGE: "previous_response_id",
    can.STOP: "stop",
    can.THINKING_BUDGET: "thinking_token_budget",
    can.IMAGE: "messages",
    can.VIDEO: "messages",
    can.AUDIO: "messages",
    EFFORT: "reasoning_effort",
    INPUT: "messages",
    MAX_OUTPUT: "max_completion_tokens",
    TOP_LOGPROBS: "top_logprobs",
    LORA: "model",
    ENDPOINT: "model",
}
_OWN: Final[Mapping[DialectName, Mapping[int, str]]] = {
    "chat": {},
    "completions": {INPUT: "prompt", MAX_OUTPUT: "max_tokens", TOP_LOGPROBS: "logprobs"},
    "responses": {
        can.JSON_OBJECT: "text.format",
        can.JSON_SCHEMA: "text.format",
        can.LOGPROBS: "top_logprobs",
        can.IMAGE: "input",
        can.VIDEO: "input",
        can.AUDIO: "input",
        EFFORT: "reasoning.effort",
        INPUT: "input",
        MAX_OUTPUT: "max_output_tokens",
    },
    "messages": {
        can.JSON_OBJECT: "output_config.format",
        can.JSON_SCHEMA: "output_config.format",
        can.STOP: "stop_sequences",
        can.THINKING_BUDGET: "thinking.budget_tokens",
        EFFORT: "output_config.effort",
        MAX_OUTPUT: "max_tokens",
    },
}


def field_of(subject: int, dialect: DialectName) -> str:
    """The client's name of a field: `subject` is a capability bit or one of the constants here."""
    return _OWN[dialect].get(subject) or _ANY[subject]
