"""A small real tokenizer: stateless, reversible, and stable under appending text.

Ids: 0..255 are single bytes, then the vocabulary's words (each with and without a space before it), and from PACKED on
three bytes at a time for everything else.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

BEGIN, END, END_THINK = 256, 257, 258  # <|im_start|>, <|im_end|>, </think>
_TEXT = (
    "the water of a river runs down to turbines and head race brings it there through gate screen canal tunnel pipe "
    "valve wheel power when flow is low high steady cold warm we open close one two more pools keep level each hour "
    "then light city mill field stone steel rain snow lake dam spill load grid line store give take turn hold rise fall"
)
WORDS = tuple(_TEXT.split())
PACKED = 65_536
_SPECIAL = {BEGIN: "<|im_start|>", END: "<|im_end|>", END_THINK: "</think>"}
_PIECE = re.compile(r" ?[A-Za-z0-9_]+|[^A-Za-z0-9_\s]+|\s+(?=[A-Za-z0-9_])|\s+")


def _vocabulary() -> Iterator[str]:
    yield from WORDS
    yield from (" " + word for word in WORDS)


class Tokenizer:
    """Text to ids and back. One object serves any number of callers."""

    def __init__(self) -> None:
        self._word_ids: Mapping[str, int] = {word: 259 + i for i, word in enumerate(_vocabulary())}
        self._words: Mapping[int, bytes] = {i: word.encode() for word, i in self._word_ids.items()} | {
            i: text.encode() for i, text in _SPECIAL.items()
        }

    def encode(self, text: str) -> list[int]:
        """Ids of `text`."""
        out: list[int] = []
        words = self._word_ids
        for piece in _PIECE.findall(text):
            if (known := words.get(piece)) is not None:
                out.append(known)
            else:
                out.extend(_pack(piece.encode("utf-8", "surrogatepass")))
        return out

    def pieces(self, text: str) -> list[tuple[int, str]]:
        """(id, text) per token; a character that spans tokens belongs to the last of them."""
        return self.shown(self.encode(text))

    def shown(self, tokens: Sequence[int]) -> list[tuple[int, str]]:
        """(id, text) per token of `tokens`, as `pieces`."""
        out: list[tuple[int, str]] = []
        held = b""
        for token in tokens:
            held += self._bytes(token)
            try:
                shown, held = held.decode(), b""
            except UnicodeDecodeError:
                shown = ""
            out.append((token, shown))
        return out

    def decode(self, tokens: Sequence[int]) -> str:
        """Text of `tokens`; ids that no text gives become U+FFFD."""
        return b"".join(map(self._bytes, tokens)).decode("utf-8", "replace")

    def chat(self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Any], effort: str, *, thinking: bool) -> str:
        """The chat template: effort first, then tools, then the turns, then the opening of the answer."""
        parts = [f"<|effort|>{effort}\n"] if effort else []
        parts += [f"<|tool|>{tool}\n" for tool in tools]
        for message in messages:
            parts.append(f"<|im_start|>{message.get('role', '')}\n")
            reasoning = message.get("reasoning_content") or message.get("reasoning")
            if reasoning:
                parts.append(f"<think>{reasoning}</think>")
            parts.append(content_text(message.get("content")))
            parts += [f"<|call|>{call.get('function', {})}" for call in message.get("tool_calls") or ()]
            parts.append("<|im_end|>\n")
        parts.append("<|im_start|>assistant\n" + ("<think>" if thinking else ""))
        return "".join(parts)

    def _bytes(self, token: int) -> bytes:
        if token < BEGIN:
            return token.to_bytes(1, "big") if token >= 0 else b"\xff"
        if token < PACKED:
            return self._words.get(token, b"\xff")
        value = token - PACKED
        return value.to_bytes(3 if value >> 16 else 2, "big") if 256 <= value < 1 << 24 else b"\xff"


def content_text(content: Any) -> str:
    """Text of a message's content: a string, or its parts, an image part counting as a fixed mark."""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    return "".join(
        str(part.get("text", "")) if part.get("type") == "text" else "<|image|>" * 64
        for part in content
        if isinstance(part, dict)
    )


def _pack(data: bytes) -> Iterator[int]:
    """Bytes three (or the last two) at a time; a pack that starts with NUL would lose it, so NULs go alone."""
    at = 0
    while at < len(data):
        pack = data[at : at + 3]
        if len(pack) == 1 or pack[0] == 0:
            yield data[at]
            at += 1
        else:
            yield PACKED + int.from_bytes(pack, "big")
            at += len(pack)
