"""Responses input: items become turns, and the items of one assistant turn are put back together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from gateway.dialects.chat_messages import document_text
from gateway.dialects.fields import invalid, missing, type_of, unsupported
from gateway.dialects.model import (
    ImagePart,
    MediaPart,
    Part,
    ReasoningPart,
    Role,
    TextPart,
    ToolCallPart,
    ToolResultPart,
    Turn,
)
from gateway.dialects.seal import Seal
from gateway.dialects.tools import engine_name, is_object, object_arguments

# What hosted tools did in earlier turns: nothing of it can be shown to the model.
_SILENT = {
    "web_search_call", "file_search_call", "computer_call", "computer_call_output", "image_generation_call",
    "code_interpreter_call", "local_shell_call", "local_shell_call_output", "shell_call", "shell_call_output",
    "apply_patch_call", "apply_patch_call_output", "mcp_call", "mcp_list_tools", "mcp_approval_request",
    "mcp_approval_response", "tool_search_call", "tool_search_output", "configuration_update",
}  # fmt: skip
_ROLES: dict[str, Role] = {"user": "user", "system": "system", "developer": "developer", "assistant": "assistant"}
Item = dict[str, Any]


def normalised(value: Any) -> list[Item]:
    """`input` as a list of items. Raises GatewayError when it is neither a string nor a list of objects."""
    if isinstance(value, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": value}]}]
    if not isinstance(value, list):
        raise invalid("input", "expected a string or a list of items")
    for position, item in enumerate(value):
        if not isinstance(item, dict):
            raise invalid(f"input[{position}]", "expected an object")
    return value


class ResponsesReader:
    """Reads items in order into `turns`. Reasoning, assistant text and calls that follow each other are one turn."""

    def __init__(self, seal: Seal | None) -> None:
        self.turns: list[Turn] = []
        self.modalities: set[str] = set()
        self.warnings: list[str] = []
        self.tools: list[Item] = []  # of `additional_tools` items
        self._seal = seal
        self._read: dict[str, Callable[[Item, str], None]] = {
            "message": self._message,
            "reasoning": self._reasoning,
            "function_call": self._function_call,
            "custom_tool_call": self._custom_call,
            "function_call_output": self._output,
            "custom_tool_call_output": self._output,
            "compaction": self._compaction,
            "additional_tools": self._additional_tools,
        }
        self._parts_of: dict[str, Callable[[Item, str], Part]] = {
            "input_image": self._image,
            "input_file": self._file,
            "input_audio": self._media("audio"),
            "input_video": self._media("video"),
        }

    def instructions(self, text: str) -> None:
        """The system turn at the front."""
        self.turns.append(Turn("system", [TextPart(text)]))

    def items(self, items: list[Item], param: str = "input") -> None:
        """All items. Raises GatewayError that names the item."""
        for position, item in enumerate(items):
            place = f"{param}[{position}]"
            kind = item.get("type", "message" if "role" in item else None)
            reader = self._read.get(str(kind))
            if reader is not None:
                reader(item, place)
            elif str(kind) in _SILENT:
                self.warnings.append(f"{place}: an item of type {kind} was left out")
            elif kind is None:
                raise missing(f"{place}.type")
            else:
                raise unsupported(place, f"items of type {kind!r} are not served")

    def _assistant(self) -> Turn:
        if not self.turns or self.turns[-1].role != "assistant":
            self.turns.append(Turn("assistant", []))
        return self.turns[-1]

    def _message(self, item: Item, place: str) -> None:
        role = _ROLES.get(str(item.get("role")))
        if role is None:
            raise invalid(f"{place}.role", f"{item.get('role')!r} is not one of {', '.join(_ROLES)}")
        parts = self._content(item.get("content"), f"{place}.content")
        if role == "assistant":
            self._assistant().parts += parts
        else:
            self.turns.append(Turn(role, parts))

    def _content(self, content: Any, place: str) -> list[Part]:
        if isinstance(content, str):
            return [TextPart(content)]
        if not isinstance(content, list):
            raise missing(place) if content is None else invalid(place, "expected a string or a list of parts")
        return [self._part(part, f"{place}[{position}]") for position, part in enumerate(content)]

    def _part(self, part: Any, place: str) -> Part:
        kind = type_of(part)
        if kind in {"input_text", "output_text", "text", "summary_text", "refusal"}:
            text = part.get("refusal" if kind == "refusal" else "text")
            if not isinstance(text, str):
                raise missing(f"{place}.text")
            return TextPart(text)
        reader = self._parts_of.get(str(kind))
        if reader is None:
            raise unsupported(f"{place}.type", f"content parts of type {kind!r} are not served")
        return reader(part, place)

    def _image(self, part: Item, place: str) -> Part:
        self.modalities.add("image")
        url = part.get("image_url")
        if not isinstance(url, str):
            if part.get("file_id"):
                raise unsupported(f"{place}.file_id", "there is no file store: send the image itself")
            raise missing(f"{place}.image_url")
        detail = part.get("detail")
        return ImagePart(url, detail if detail in {"low", "high"} else None)

    def _file(self, part: Item, place: str) -> Part:
        if part.get("file_url"):
            raise unsupported(f"{place}.file_url", "only plain-text documents are served")
        return TextPart(document_text(part, place))

    def _media(self, modality: str) -> Callable[[Item, str], Part]:
        def read(part: Item, place: str) -> Part:
            self.modalities.add(modality)
            if modality == "audio":
                return MediaPart({"type": "input_audio", "input_audio": part.get("input_audio")})
            url = part.get("video_url")
            if not isinstance(url, str):
                raise missing(f"{place}.video_url")
            return MediaPart({"type": "video_url", "video_url": {"url": url}})

        return read

    def _reasoning(self, item: Item, place: str) -> None:
        """Our own seal first, then the text that came with it; a foreign seal without text is nothing."""
        sealed = item.get("encrypted_content")
        opened = self._seal.open(sealed) if self._seal is not None and isinstance(sealed, str) else None
        if opened is not None:
            self._assistant().parts.append(ReasoningPart(opened[1], opened[0]))
            return
        for key in ("content", "summary"):
            parts = item.get(key)
            texts = [part for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
            text = "".join(str(part.get("text", "")) for part in texts)
            if text:
                self._assistant().parts.append(ReasoningPart(text))
                return
        if sealed:
            self.warnings.append(f"{place}: foreign encrypted reasoning was left out")

    def _field(self, item: Item, name: str, place: str) -> str:
        value = item.get(name)
        if not isinstance(value, str):
            raise missing(f"{place}.{name}") if value is None else invalid(f"{place}.{name}", "expected a string")
        return value

    def _function_call(self, item: Item, place: str) -> None:
        arguments = self._field(item, "arguments", place)
        if not is_object(arguments):
            arguments = msgspec.json.encode(object_arguments(arguments)).decode()
        self._call(item, place, arguments)

    def _custom_call(self, item: Item, place: str) -> None:
        text = self._field(item, "input", place)
        self._call(item, place, msgspec.json.encode({"input": text}).decode())

    def _call(self, item: Item, place: str, arguments: str) -> None:
        name = engine_name(self._field(item, "name", place), item.get("namespace"))
        self._assistant().parts.append(ToolCallPart(self._field(item, "call_id", place), name, arguments))

    def _output(self, item: Item, place: str) -> None:
        call_id = self._field(item, "call_id", place)
        output = item.get("output")
        parts: list[Any] = [] if output is None else self._content(output, f"{place}.output")
        self.turns.append(Turn("tool", [ToolResultPart(call_id, parts)]))

    def _compaction(self, item: Item, place: str) -> None:
        opened = self._seal.open(self._field(item, "encrypted_content", place)) if self._seal is not None else None
        if opened is None:
            self.warnings.append(f"{place}: a foreign compaction was left out")
        else:
            self.turns.append(Turn("user", [TextPart(f"Summary of the conversation so far:\n\n{opened[1]}")]))

    def _additional_tools(self, item: Item, place: str) -> None:
        tools = item.get("tools")
        if not isinstance(tools, list):
            raise missing(f"{place}.tools")
        self.tools += tools
