"""Everyday Chat as `direct` recognises it: in a module of its own, because compiled ones cannot define structs."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from gateway.dialects.engine_usage import EngineUsage
from gateway.dialects.fields import Penalty, Share


class _Message(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    role: Literal["system", "user", "assistant"]
    content: str


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    include_usage: bool = False


class Asked(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    """A request without anything that needs care."""

    model: str
    messages: Annotated[list[_Message], Meta(min_length=1)]
    stream: bool = False
    stream_options: _StreamOptions | UnsetType = UNSET
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=1)] | None = None
    temperature: Annotated[float, Meta(ge=0, le=2)] | None = None
    top_p: Share | None = None
    top_k: int | None = None
    min_p: Share | None = None
    seed: int | None = None
    presence_penalty: Penalty | None = None
    frequency_penalty: Penalty | None = None


class Named(msgspec.Struct, gc=False):
    """The model that a reader of a request finds: of a key that is there twice, the last counts."""

    model: str


class _Said(msgspec.Struct, gc=False):
    role: Literal["assistant"]
    content: str
    reasoning: UnsetType | None = UNSET
    tool_calls: UnsetType | None = UNSET


class _Choice(msgspec.Struct, gc=False):
    message: _Said
    finish_reason: Literal["stop", "length"]


class Answer(msgspec.Struct, gc=False):
    """An answer that may already be what a client is told."""

    id: str
    model: str
    choices: Annotated[list[_Choice], Meta(min_length=1)]
    usage: EngineUsage
    error: UnsetType = UNSET
    metadata: UnsetType = UNSET  # SGLang's own, of types that clients' models refuse


class _Delta(msgspec.Struct, gc=False):
    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: UnsetType | None = UNSET
    reasoning: UnsetType = UNSET
    refusal: UnsetType = UNSET
    audio: UnsetType = UNSET
    tool_calls: UnsetType = UNSET
    function_call: UnsetType = UNSET


class Part(msgspec.Struct, gc=False):
    """What an event says of its choice."""

    index: Literal[0]
    delta: _Delta
    finish_reason: Literal["stop", "length"] | None = None


class Event(msgspec.Struct, gc=False):
    """An event of a stream with one choice that may already be what a client is told."""

    id: str
    created: int
    model: str
    choices: Annotated[list[Part], Meta(max_length=1)]
    usage: EngineUsage | None = None
    error: UnsetType = UNSET
    metadata: UnsetType = UNSET
