"""Halves of surrogate pairs that an engine put into two deltas, put together again."""

from __future__ import annotations

import json
import re
from typing import Any

_HALF = re.compile(rb"\\u[dD][89abAB]")
_KEYS = ("content", "reasoning_content", "reasoning")


def join(high: str, text: str) -> tuple[str, str]:
    """Put a waiting high surrogate before `text`, and keep back one at its end: (text, high)."""
    if not high and text.isascii():
        return text, ""
    text = high + text
    high = ""
    if "\ud800" <= text[-1] <= "\udbff":
        text, high = text[:-1], text[-1]
    if any("\ud800" <= character <= "\udfff" for character in text):
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text, high


class Mender:
    """Mends the payloads of one stream whose bytes are otherwise handed on."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: dict[tuple[int, str], str] = {}  # high surrogates by choice and key

    def mend(self, payload: bytes) -> bytes:
        """The payload with whole characters; the same object when there is nothing to mend.

        Raises ValueError when it is no JSON.
        """
        if not self._waiting and not _HALF.search(payload):
            return payload
        chunk = json.loads(payload)
        choices = chunk.get("choices") if isinstance(chunk, dict) else None
        for choice in choices if isinstance(choices, list) else ():
            delta = choice.get("delta") if isinstance(choice, dict) else None
            if isinstance(delta, dict):
                self._delta(choice.get("index", 0), delta)
        return json.dumps(chunk, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")

    def _delta(self, choice: int, delta: dict[str, Any]) -> None:
        for key in _KEYS:
            text = delta.get(key)
            if isinstance(text, str) and text:
                delta[key], high = join(self._waiting.pop((choice, key), ""), text)
                if high:
                    self._waiting[choice, key] = high
