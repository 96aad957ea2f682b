"""Chat messages as the client sent them: one shallow look that validates, and edits of single messages.

Engines take Chat, so messages go on as bytes. A message is decoded further only where a template would misread it.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from msgspec import Raw

from gateway.dialects.chunk import Fields
from gateway.dialects.fields import invalid, missing, object_of, read, unsupported
from gateway.dialects.model import Scan
from gateway.dialects.tools import engine_name, is_object, object_arguments
from gateway.dialects.turns import split_thinking

_NULL = b"null"
_ABSENT = Raw(_NULL)
_THINK_END = b"</think>"
_QUOTE, _BRACKET = b'"['
_PLAIN_ROLES = {"user", "system"}  # nothing more to look at when the content is a string
_ROLES = {"system", "developer", "user", "assistant", "tool", "function"}
_MODALITIES = {"image_url": "image", "input_audio": "audio", "video_url": "video", "audio_url": "audio"}


class _Message(msgspec.Struct):
    role: str
    content: Raw = _ABSENT
    reasoning: Raw = _ABSENT
    tool_calls: Raw = _ABSENT
    function_call: Raw = _ABSENT
    tool_call_id: str | None = None


class _PartHead(msgspec.Struct):
    type: str


class _Called(msgspec.Struct):
    name: str
    arguments: str = ""


class _CustomCalled(msgspec.Struct):
    name: str
    input: str = ""


class _Call(msgspec.Struct):
    id: str
    type: str = "function"
    function: _Called | None = None
    custom: _CustomCalled | None = None


_messages = msgspec.json.Decoder(list[_Message])
_parts = msgspec.json.Decoder(list[_PartHead])
_calls = msgspec.json.Decoder(list[_Call])
_called = msgspec.json.Decoder(_Called)
_editable = msgspec.json.Decoder(list[dict[str, Raw]])
_any = msgspec.json.Decoder(Any)


def scan(value: Raw, body: bytes) -> Scan:
    """Validate the messages, which are part of `body`. Raises GatewayError that names the message and field."""
    messages: list[_Message] = read("messages", _messages.decode, value)
    if not messages:
        raise invalid("messages", "at least one message is required")
    found = Scan(thinking=b"<" in body and _THINK_END in body)  # a single byte is found much faster
    for position, message in enumerate(messages):
        plain = memoryview(message.content)[0] == _QUOTE
        if not (plain and message.role in _PLAIN_ROLES):
            _scan_message(f"messages[{position}]", message, found)
    return found


def _scan_message(place: str, message: _Message, found: Scan) -> None:
    role = message.role
    if role not in _ROLES:
        raise invalid(f"{place}.role", f"{role!r} is not one of {', '.join(sorted(_ROLES))}")
    _scan_content(f"{place}.content", message.content, found)
    if role == "assistant":
        _scan_assistant(place, message, found)
    elif role == "tool" and message.tool_call_id is None:
        raise missing(f"{place}.tool_call_id")
    found.developer = found.developer or role == "developer"
    found.edits = found.edits or role == "function"


def _scan_content(place: str, content: Raw, found: Scan) -> None:
    first = memoryview(content)[0]
    if first == _QUOTE:
        return
    if first == _BRACKET:
        for position, part in enumerate(read(place, _parts.decode, content)):
            _scan_part(f"{place}[{position}]", part.type, found)
    elif bytes(content) != _NULL:
        raise invalid(place, "expected a string, a list of parts or null")


def _scan_part(place: str, kind: str, found: Scan) -> None:
    if kind in _MODALITIES:
        found.modalities.add(_MODALITIES[kind])
    elif kind == "file":
        found.edits = True
    elif kind not in {"text", "refusal", "input_text", "output_text", "thinking"}:
        raise unsupported(f"{place}.type", f"content parts of type {kind!r} are not served")


def _given(value: Raw) -> bool:
    return value is not _ABSENT and bytes(value) != _NULL


def _scan_assistant(place: str, message: _Message, found: Scan) -> None:
    if _given(message.reasoning):
        found.reasoning = True
    if _given(message.function_call):
        read(f"{place}.function_call", _called.decode, message.function_call)
        found.edits = True
    if found.thinking and _THINK_END in bytes(message.content):
        found.edits = True
    if not _given(message.tool_calls):
        return
    for call in read(f"{place}.tool_calls", _calls.decode, message.tool_calls):
        function = call.function
        if function is None and call.custom is None:
            raise missing(f"{place}.tool_calls.{call.type}")
        plain = function is not None and function.name == engine_name(function.name)
        if not plain or function is None or not is_object(function.arguments):
            found.edits = True


def edit(value: Raw, *, developer: bool, reasoning_field: str) -> Raw:
    """The messages as an engine's template understands them; the list was scanned before.

    `developer`: the template knows that role. Reasoning goes under `reasoning_field`.
    """
    messages: list[Fields] = _editable.decode(value)
    calls = 0
    for position, message in enumerate(messages):
        role = _any.decode(message["role"])
        if role == "developer" and not developer:
            message["role"] = _raw("system")
        elif role == "function":
            _function_result(message, calls)
        elif role == "assistant":
            calls = _assistant(message, reasoning_field, calls)
        _files(message, f"messages[{position}].content")
    return _raw(messages)


def _raw(value: Any) -> Raw:
    return Raw(msgspec.json.encode(value))


def _function_result(message: Fields, calls: int) -> None:
    """The deprecated role `function` answers the last `function_call`."""
    message["role"] = _raw("tool")
    message["tool_call_id"] = _raw(f"call_{calls}")
    message.pop("name", None)


def _assistant(message: Fields, reasoning_field: str, calls: int) -> int:
    for spelled in ("reasoning", "reasoning_content"):
        if spelled != reasoning_field and spelled in message:
            given = message.pop(spelled)
            if bytes(given) != _NULL:
                message.setdefault(reasoning_field, given)
    _split_thinking(message, reasoning_field)
    called = message.pop("function_call", None)
    if called is not None and bytes(called) != _NULL:
        calls += 1
        function = _called.decode(called)
        message["tool_calls"] = _raw([_engine_call(f"call_{calls}", function.name, function.arguments)])
    elif bytes(message.get("tool_calls", _NULL)) not in (_NULL, b"[]"):
        message["tool_calls"] = _raw([_rewritten(call) for call in _calls.decode(message["tool_calls"])])
    return calls


def _split_thinking(message: Fields, reasoning_field: str) -> None:
    """Reasoning that a client kept inside the text goes where the template looks for it."""
    content = message.get("content")
    if content is None or bytes(memoryview(content)[:1]) != b'"' or _THINK_END not in bytes(content):
        return
    thought, text = split_thinking(str(_any.decode(content)))
    message.setdefault(reasoning_field, _raw(thought))
    message["content"] = _raw(text)


def _rewritten(call: _Call) -> dict[str, Any]:
    if call.custom is not None:
        text = msgspec.json.encode({"input": call.custom.input}).decode()
        return _engine_call(call.id, call.custom.name, text)
    function = call.function or _Called("")
    return _engine_call(call.id, function.name, function.arguments)


def _engine_call(call_id: str, name: str, arguments: str) -> dict[str, Any]:
    if not is_object(arguments):
        arguments = msgspec.json.encode(object_arguments(arguments)).decode()
    return {"id": call_id, "type": "function", "function": {"name": engine_name(name), "arguments": arguments}}


def _files(message: Fields, place: str) -> None:
    content = message.get("content")
    if content is None or bytes(memoryview(content)[:1]) != b"[" or b'"file"' not in bytes(content):
        return
    parts = _any.decode(content)
    for position, part in enumerate(parts):
        if part.get("type") == "file":
            where = f"{place}[{position}].file"
            parts[position] = {"type": "text", "text": document_text(object_of(part.get("file"), where), where)}
    message["content"] = _raw(parts)


def document_text(file: dict[str, Any], place: str) -> str:
    """The text of a plain-text file part; anything else is refused, because the gateway extracts no text."""
    if file.get("file_id"):
        raise unsupported(f"{place}.file_id", "there is no file store: send the content itself")
    data = file.get("file_data")
    if not isinstance(data, str):
        raise missing(f"{place}.file_data")
    head, comma, encoded = data.partition(",")
    media = head.removeprefix("data:").split(";")[0] if comma else ""
    if not media.startswith("text/"):
        raise unsupported(f"{place}.file_data", "only plain-text documents are served")
    return decoded_text(encoded, place, file.get("filename"))


def decoded_text(encoded: str, place: str, title: Any) -> str:
    """Base64 text with its title as a heading."""
    try:
        text = base64.b64decode(encoded, validate=True).decode()
    except (binascii.Error, ValueError):
        raise invalid(place, "expected base64 of UTF-8 text") from None
    return titled(text, title)


def titled(text: str, title: Any) -> str:
    """A document's text under its title."""
    return f"<document title={title!r}>\n{text}\n</document>" if title else text
