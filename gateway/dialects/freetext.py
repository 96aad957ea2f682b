"""The text of a custom tool's call, taken out of its JSON arguments while they are still coming."""

from __future__ import annotations

import json
import re

from gateway.dialects.tools import unwrap

_ESCAPE = 12  # characters of the longest escape; a shorter rest is one that was cut off
_OPENING = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# Whole characters and escapes; a high surrogate only together with its low one.
_WHOLE = re.compile(
    r'(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89a-bA-B])[0-9a-fA-F]{4}|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*'
)


class FreeText:
    """Decodes `{"input": "…"}` piece by piece. Arguments of another form are given out whole, at the end."""

    __slots__ = ("_inside", "_pieces", "_rest", "text")

    def __init__(self) -> None:
        self.text = ""  # what was given out
        self._pieces: list[str] = []
        self._rest = ""  # arguments not decoded yet
        self._inside: bool | None = False  # within the string; None: it has ended

    def feed(self, fragment: str) -> str:
        """The text that has become certain."""
        self._pieces.append(fragment)
        if self._inside is None:
            return ""
        self._rest += fragment
        if not self._inside:
            opening = _OPENING.match(self._rest)
            if opening is None:
                return ""
            self._inside, self._rest = True, self._rest[opening.end() :]
        whole = _WHOLE.match(self._rest)
        length = whole.end() if whole is not None else 0
        text: str = json.loads(f'"{self._rest[:length]}"', strict=False)
        self._rest = self._rest[length:]
        if self._rest.startswith('"'):
            self._inside = None
        self.text += text
        return text

    def finish(self) -> str:
        """The rest, now that the arguments are complete or cut off."""
        rest = ""
        if self._inside is False:
            rest = unwrap("".join(self._pieces))
        elif self._inside and len(self._rest) >= _ESCAPE:  # an escape that is none: better raw than lost
            rest = self._rest
        self.text += rest
        return rest
