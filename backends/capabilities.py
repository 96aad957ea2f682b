"""A contract boiled down for the hot path: one integer of bits and a few plain values. Standard library only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backends.contract import PoolContract

IMAGE: Final = 1
VIDEO: Final = 2
AUDIO: Final = 4
TOOLS: Final = 8
TOOL_REQUIRED: Final = 16
TOOL_NAMED: Final = 32
JSON_OBJECT: Final = 64
JSON_SCHEMA: Final = 128
REGEX: Final = 256
GRAMMAR: Final = 512
LOGPROBS: Final = 1024
STORAGE: Final = 2048
STOP: Final = 4096  # stop strings that match in the answer only
PRIORITY: Final = 8192
THINKING_BUDGET: Final = 16384
REASONING_OFF: Final = 32768

NO_LIMIT: Final = 1 << 62
_FORMATS: Final[Mapping[str, int]] = {
    "json_object": JSON_OBJECT,
    "json_schema": JSON_SCHEMA,
    "regex": REGEX,
    "grammar": GRAMMAR,
}
_TOOL_MODES: Final[Mapping[str, int]] = {"auto": TOOLS, "required": TOOL_REQUIRED, "named": TOOL_NAMED}
_MODALITIES: Final[Mapping[str, int]] = {"image": IMAGE, "video": VIDEO, "audio": AUDIO}


@dataclass(frozen=True, slots=True)
class Capabilities:
    """A contract boiled down to what a request is compared with: one integer of bits and a few plain values."""

    pool: str
    bits: int
    endpoints: frozenset[str] | None  # None: any
    efforts: tuple[str, ...] | None  # None: unknown, taken as asked
    default_effort: str | None
    loras: frozenset[str] | None
    window: int
    max_output: int
    max_logprobs: int
    frontend: str
    reasoning: bool
    held: bool = False


def capabilities(contract: PoolContract) -> Capabilities:
    """The view of one contract. Unknown terms count as present, but for video, priority and a thinking budget."""
    terms = contract.terms
    bits = _bits(terms.modalities, _MODALITIES, unknown=IMAGE | AUDIO)
    bits |= _bits(terms.tool_modes, _TOOL_MODES, unknown=TOOLS | TOOL_REQUIRED | TOOL_NAMED)
    bits |= _bits(terms.formats, _FORMATS, unknown=JSON_OBJECT | JSON_SCHEMA | REGEX | GRAMMAR)
    for present, bit in (
        (terms.logprobs is None or terms.logprobs > 0, LOGPROBS),
        (terms.storage is not False, STORAGE),
        # Without reasoning there is nothing but the answer for a stop string to match.
        (terms.stop_scope == "answer" or terms.reasoning is False, STOP),
        (terms.priority is True, PRIORITY),
        (terms.thinking_budget is True, THINKING_BUDGET),
        (terms.reasoning_off is not False or terms.reasoning is False, REASONING_OFF),
    ):
        bits |= bit if present else 0
    return Capabilities(
        pool=contract.pool,
        bits=bits,
        endpoints=terms.endpoints,
        efforts=terms.efforts,
        default_effort=terms.default_effort,
        loras=terms.loras,
        window=terms.max_context or NO_LIMIT,
        max_output=terms.max_output or NO_LIMIT,
        max_logprobs=NO_LIMIT if terms.logprobs is None else terms.logprobs,
        frontend=terms.frontend or "",
        reasoning=terms.reasoning is not False,
        held=contract.held,
    )


def _bits(have: frozenset[str] | frozenset[Any] | None, table: Mapping[str, int], *, unknown: int) -> int:
    return unknown if have is None else sum(table.get(item, 0) for item in have)
