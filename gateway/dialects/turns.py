"""Canonical turns as engine Chat messages."""

from __future__ import annotations

from typing import Any

from gateway.dialects.fields import unsupported
from gateway.dialects.model import (
    ImagePart,
    MediaPart,
    Part,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from gateway.dialects.target import Target


def engine_messages(turns: list[Turn], target: Target) -> list[dict[str, Any]]:
    """One message per turn, in the same order. Raises GatewayError for images on a pool that takes none."""
    return [_message(turn, target) for turn in turns]


def split_thinking(text: str) -> tuple[str, str]:
    """Reasoning that a client kept in the text of an assistant turn, and the rest. Templates look for it there too."""
    before, end, after = text.partition("</think>")
    if not end:
        return "", text
    return before.removeprefix("<think>").strip("\n"), after.lstrip("\n")


def _message(turn: Turn, target: Target) -> dict[str, Any]:
    if turn.role == "assistant":
        return _assistant(turn, target)
    if turn.role == "tool":
        return _result(turn, target)
    if turn.role in {"system", "developer"}:
        role = turn.role if target.developer_role else "system"
        return {"role": role, "content": "\n\n".join(_texts(turn.parts))}
    message = {"role": turn.role, "content": _content(turn.parts, target)}
    return message | {"name": turn.name} if turn.name else message


def _texts(parts: list[Part]) -> list[str]:
    return [part.text for part in parts if isinstance(part, TextPart)]


def _content(parts: list[Any], target: Target) -> str | list[dict[str, Any]]:
    """A single text stays a string; anything else keeps its parts, because joining would change the prompt."""
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [_part(part, target) for part in parts]


def _part(part: TextPart | ImagePart | MediaPart, target: Target) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    if isinstance(part, MediaPart):
        return part.part
    if not target.images:
        raise unsupported("messages", "this model takes no images")
    image = {"url": part.url}
    return {"type": "image_url", "image_url": image | {"detail": part.detail} if part.detail else image}


def _assistant(turn: Turn, target: Target) -> dict[str, Any]:
    family = target.family or target.model
    thinking = [part for part in turn.parts if isinstance(part, ReasoningPart) and part.text]
    thoughts = [part.text for part in thinking if part.family in {None, family}]
    calls = [part for part in turn.parts if isinstance(part, ToolCallPart)]
    thought, text = split_thinking("".join(_texts(turn.parts)))
    message: dict[str, Any] = {"role": "assistant", "content": text if text or not calls else None}
    if thoughts or thought:
        message[target.reasoning_field] = "\n".join(thoughts) or thought
    if calls:
        message["tool_calls"] = [
            {"id": call.call_id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
            for call in calls
        ]
    return message


def _result(turn: Turn, target: Target) -> dict[str, Any]:
    result = next(part for part in turn.parts if isinstance(part, ToolResultPart))
    content = _content(result.parts, target) if result.parts else ""
    return {"role": "tool", "tool_call_id": result.call_id, "content": content}
