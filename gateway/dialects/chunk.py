"""Engine answers in Chat, one level at a time: fields as the engine's own bytes, and the usage record."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.base import Usage
from gateway.dialects.engine_usage import EngineUsage

Fields = dict[str, Raw]
_fields = msgspec.json.Decoder(dict[str, Raw])
_list = msgspec.json.Decoder(list[dict[str, Raw]])


def is_utf8(data: bytes) -> bool:
    """Whether complete text is UTF-8, as JSON must be. Decoders that leave values as bytes do not look into them."""
    if data.isascii():
        return True
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def decode_fields(data: bytes | Raw) -> Fields | None:
    """The top level of a JSON object; None when it is none."""
    try:
        return _fields.decode(data)
    except (msgspec.ValidationError, msgspec.DecodeError):
        return None


def fields_of(value: Raw | None) -> Fields:
    """The fields of a nested object; {} for null or nothing."""
    if value is None or bytes(value) == b"null":
        return {}
    return _fields.decode(value)


def list_of_fields(value: Raw) -> list[Fields]:
    """The objects of a list; [] for null."""
    return [] if bytes(value) == b"null" else _list.decode(value)


_usage = msgspec.json.Decoder(EngineUsage)


def canonical_usage(given: EngineUsage) -> Usage:
    """Canonical counts: cached within prompt, reasoning within completion, whatever the engine says."""
    prompt, completion = given.prompt_tokens or 0, given.completion_tokens or 0
    cached = written = None
    reasoning = given.reasoning_tokens
    if (details := given.prompt_tokens_details) is not None:
        cached, written = details.cached_tokens, details.cache_write_tokens
        written = details.created_cache_tokens if written is None else written
    if (output := given.completion_tokens_details) is not None and output.reasoning_tokens is not None:
        reasoning = output.reasoning_tokens
    if cached is not None:
        cached = min(cached, prompt)
    if written is not None:
        written = min(written, prompt - (cached or 0))
    return Usage(prompt, completion, cached, written, min(reasoning, completion) if reasoning else 0)


def read_usage(value: Raw) -> Usage:
    """Read an engine's `usage`."""
    return canonical_usage(_usage.decode(value))


def openai_usage(usage: Usage) -> dict[str, Any]:
    """`usage` of Chat and Completions. What the engine did not say is left out."""
    record: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "completion_tokens": usage.completion,
        "total_tokens": usage.prompt + usage.completion,
    }
    details = {"cached_tokens": usage.cached, "cache_write_tokens": usage.cache_write}
    given = {key: value for key, value in details.items() if value is not None}
    if given:
        record["prompt_tokens_details"] = given
    record["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return record


def merged_usage(usage: Usage, given: Raw) -> Raw:
    """The engine's `usage` with our counts written over its own; what we do not know stays."""
    merged = msgspec.json.decode(given)
    for key, value in openai_usage(usage).items():
        old = merged.get(key)
        merged[key] = old | value if isinstance(old, dict) else value
    return Raw(msgspec.json.encode(merged))
