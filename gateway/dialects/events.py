"""The engine's answer as canonical deltas, the alphabet between decoder and encoders."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gateway.dialects.base import Usage

Stop = Literal["end", "length", "tool", "stop_sequence", "filter", "context", "error", "cancelled"]


class Think(msgspec.Struct, gc=False):
    """A piece of reasoning."""

    text: str
    choice: int = 0


class Text(msgspec.Struct):
    """A piece of the answer. `logprobs` are the engine's entries for it, untouched."""

    text: str
    choice: int = 0
    logprobs: list[Any] | None = None


class Refusal(msgspec.Struct, gc=False):
    """A piece of a refusal."""

    text: str
    choice: int = 0


class ToolOpen(msgspec.Struct, gc=False):
    """A tool call begins. `index` counts from 0 in the order of opening, per choice."""

    index: int
    id: str
    name: str
    choice: int = 0


class ToolArgs(msgspec.Struct, gc=False):
    """A piece of the arguments of call `index`, which is open."""

    index: int
    fragment: str
    choice: int = 0


class Counted(msgspec.Struct):
    """The token counts so far; the last one wins."""

    usage: Usage


class End(msgspec.Struct, gc=False):
    """A choice is complete."""

    stop: Stop
    sequence: str | None = None  # the stop string that matched
    choice: int = 0


Event = Think | Text | Refusal | ToolOpen | ToolArgs | Counted | End
