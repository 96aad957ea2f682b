"""Messages requests: blocks become parts, tool results become turns of their own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from gateway.dialects.chat_messages import decoded_text, titled
from gateway.dialects.fields import invalid, list_of, missing, object_of, type_of, unsupported
from gateway.dialects.model import ImagePart, Part, ReasoningPart, TextPart, ToolCallPart, ToolResultPart, Turn
from gateway.dialects.seal import Seal
from gateway.dialects.tools import engine_name

_BILLING = "x-anthropic-billing-header"
_ERROR = re.compile(r"\s*(<\w*error|\w*error\b)", re.IGNORECASE)
# What servers of Anthropic did in earlier turns: their results cannot be shown to another model.
_SERVER_BLOCKS = re.compile(r"server_tool_use|mcp_tool_use|\w+_tool_result|container_upload|compaction|fallback")
Blocks = list[dict[str, Any]]


class MessagesReader:
    """Reads the prompt of one request. Collects modalities, tools made known, and warnings on the way."""

    def __init__(self, seal: Seal | None) -> None:
        self.turns: list[Turn] = []
        self.modalities: set[str] = set()
        self.referenced: set[str] = set()
        self.warnings: list[str] = []
        self._seal = seal
        self._read: dict[str, Callable[[dict[str, Any], str], list[Part]]] = {
            "text": self._text,
            "image": self._image,
            "document": self._document,
            "search_result": self._search_result,
            "thinking": self._thinking,
            "redacted_thinking": self._redacted,
            "tool_use": self._tool_use,
            "tool_reference": self._tool_reference,
        }

    def system(self, value: str | Blocks) -> None:
        """The system prompt: turn 0. The billing line, new in every request, would spoil the prefix cache."""
        blocks = [{"type": "text", "text": value}] if isinstance(value, str) else value
        texts = [self._field(block, "text", f"system.{place}") for place, block in enumerate(blocks)]
        parts: list[Part] = [TextPart(text) for text in texts if text and not text.startswith(_BILLING)]
        if parts:
            self.turns.append(Turn("system", parts))

    def message(self, role: str, content: str | Blocks, place: str) -> None:
        """One message at its place."""
        if isinstance(content, str):
            content = [{"type": "text", "text": content}] if content or role != "assistant" else []
        if role == "user":
            self._user(content, place)
        elif role in {"assistant", "system"}:
            parts = self._parts(content, place)
            self.turns.append(Turn("assistant" if role == "assistant" else "system", parts))
        else:
            raise invalid(f"{place}.role", f"{role!r} is not one of user, assistant, system")

    def _user(self, blocks: Blocks, place: str) -> None:
        """Tool results come first, each as a turn: engines want them right after the calls."""
        rest: list[Part] = []
        for position, block in enumerate(list_of(blocks, f"{place}.content")):
            where = f"{place}.content.{position}"
            if type_of(block) == "tool_result":
                self.turns.append(Turn("tool", [self._result(block, where)]))
            else:
                rest += self._block(block, where)
        if rest:
            self.turns.append(Turn("user", rest))

    def _result(self, block: dict[str, Any], place: str) -> ToolResultPart:
        call_id = self._field(block, "tool_use_id", place)
        content = block.get("content") or []
        if isinstance(content, str):
            parts: list[Any] = [TextPart(content)]
        else:
            parts = self._parts(content, place)
        if block.get("is_error"):
            self._mark_error(parts)
        return ToolResultPart(call_id, parts)

    def _mark_error(self, parts: list[Any]) -> None:
        first = parts[0] if parts and isinstance(parts[0], TextPart) else None
        if first is None:
            parts.insert(0, TextPart("Error"))
        elif not _ERROR.match(first.text):
            parts[0] = TextPart(f"Error: {first.text}")

    def _parts(self, blocks: Any, place: str) -> list[Part]:
        if not isinstance(blocks, list):
            raise invalid(f"{place}.content", "expected a string or a list of blocks")
        return [part for i, block in enumerate(blocks) for part in self._block(block, f"{place}.content.{i}")]

    def _block(self, block: Any, place: str) -> list[Part]:
        kind = block.get("type") if isinstance(block, dict) else None
        if not isinstance(kind, str):
            raise missing(f"{place}.type")
        reader = self._read.get(kind)
        if reader is not None:
            return reader(block, place)
        if _SERVER_BLOCKS.fullmatch(kind):
            self.warnings.append(f"{place}: a block of type {kind} was left out")
            return []
        raise unsupported(place, f"blocks of type {kind!r} are not served")

    def _field(self, block: dict[str, Any], name: str, place: str) -> str:
        value = block.get(name)
        if not isinstance(value, str):
            raise missing(f"{place}.{name}") if value is None else invalid(f"{place}.{name}", "expected a string")
        return value

    def _text(self, block: dict[str, Any], place: str) -> list[Part]:
        return [TextPart(self._field(block, "text", place))]

    def _image(self, block: dict[str, Any], place: str) -> list[Part]:
        source = object_of(block.get("source"), f"{place}.source")
        kind = source.get("type")
        self.modalities.add("image")
        if kind == "base64":
            media = self._field(source, "media_type", f"{place}.source")
            data = self._field(source, "data", f"{place}.source")
            return [ImagePart(f"data:{media};base64,{data}")]
        if kind == "url":
            return [ImagePart(self._field(source, "url", f"{place}.source"))]
        raise unsupported(f"{place}.source", f"images from {kind!r} are not served: send base64 or url")

    def _document(self, block: dict[str, Any], place: str) -> list[Part]:
        source, title = object_of(block.get("source"), f"{place}.source"), block.get("title")
        kind, media = source.get("type"), source.get("media_type")
        if kind == "text":
            return [TextPart(titled(self._field(source, "data", f"{place}.source"), title))]
        if kind == "base64" and media == "text/plain":
            return [TextPart(decoded_text(self._field(source, "data", f"{place}.source"), f"{place}.source", title))]
        if kind == "content":
            inner = source.get("content")
            return [TextPart(inner)] if isinstance(inner, str) else self._parts(inner, f"{place}.source")
        raise unsupported(f"{place}.source", "only plain-text documents are served")

    def _search_result(self, block: dict[str, Any], place: str) -> list[Part]:
        head = f"{block.get('title', '')} ({block.get('source', '')})"
        texts = [part.text for part in self._parts(block.get("content"), place) if isinstance(part, TextPart)]
        return [TextPart("\n".join([head, *texts]))]

    def _thinking(self, block: dict[str, Any], place: str) -> list[Part]:
        opened = self._seal.open(block.get("signature") or "") if self._seal is not None else None
        if opened is not None:
            return [ReasoningPart(opened[1], opened[0])]
        return [ReasoningPart(self._field(block, "thinking", place))]

    def _redacted(self, block: dict[str, Any], place: str) -> list[Part]:
        opened = self._seal.open(self._field(block, "data", place)) if self._seal is not None else None
        if opened is None:
            self.warnings.append(f"{place}: foreign redacted thinking was left out")
            return []
        return [ReasoningPart(opened[1], opened[0])]

    def _tool_use(self, block: dict[str, Any], place: str) -> list[Part]:
        given = block.get("input")
        if not isinstance(given, dict):
            raise invalid(f"{place}.input", "expected an object")
        arguments = msgspec.json.encode(given).decode()
        name = engine_name(self._field(block, "name", place))
        return [ToolCallPart(self._field(block, "id", place), name, arguments)]

    def _tool_reference(self, block: dict[str, Any], place: str) -> list[Part]:
        name = self._field(block, "tool_name", place)
        self.referenced.add(engine_name(name))
        return [TextPart(f"The tool {name} is available now.")]
