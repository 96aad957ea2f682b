"""Long conversations come again with every turn: what was once read of one is not read again."""

from __future__ import annotations

import re

WORTH = 16 * 1024  # bytes of a body from which comparing costs less than reading
_ENTRIES = 16
_BUDGET = 4 * 1024 * 1024  # bytes of all openings
# As every SDK writes them: without white space.
_ARRAY = b'"messages":['
_NEXT = b'},{"role":"'  # the end of a message and the start of the next
# A key before an array, however the key is spelled. Inside a string the quote would be escaped.
_SECOND = re.compile(rb'(?<!\\)"\s*:\s*\[')


class Opening:
    """A body up to the end of one of its messages, and its first part up to where the messages begin."""

    __slots__ = ("before", "text")

    def __init__(self, text: bytes, before: bytes) -> None:
        self.text = text
        self.before = before


class Openings:
    """Openings of bodies that were read and found direct, those used last first.

    Direct bodies have one array, of messages with two strings each. A quote inside a string is escaped, so the marks
    looked for here are never part of a text. After an opening and a comma, any rest is right exactly when it is right
    at the array's start, and means the same there but for the messages of the opening.
    """

    __slots__ = ("_known", "_size")

    def __init__(self) -> None:
        self._known: list[Opening] = []
        self._size = 0  # bytes

    def find(self, body: bytes) -> Opening | None:
        """The opening that a body begins with, followed by a comma."""
        known = self._known
        for at, opening in enumerate(known):
            end = len(opening.text)
            if body.startswith(opening.text) and body[end : end + 1] == b",":
                if at:
                    del known[at]
                    known.insert(0, opening)
                return opening
        return None

    def unread(self, body: bytes, opening: Opening) -> bytes:
        """A body without the messages of its opening."""
        return opening.before + body[len(opening.text) + 1 :]

    def learn(self, body: bytes, opening: Opening | None) -> None:
        """Remember all but the last message of a body that was found direct; `opening` is what was known of it."""
        if opening is None:
            start = body.find(_ARRAY, 0, WORTH)
            before, read = body[: start + len(_ARRAY)], start + len(_ARRAY)
            if start < 0:
                return
        else:
            before, read = opening.before, len(opening.text)
        end = body.rfind(_NEXT, read) + 1
        # A second array would have to close the first.
        if end <= read or (body.find(b"]", read, end) >= 0 and _SECOND.search(body, read, end)):
            return
        self._add(Opening(body[:end], before))
        if opening is not None:  # the conversation went on
            self._remove(opening)

    def _add(self, opening: Opening) -> None:
        self._known.insert(0, opening)
        self._size += len(opening.text)
        while self._size > _BUDGET or len(self._known) > _ENTRIES:
            self._remove(self._known[-1])

    def _remove(self, opening: Opening) -> None:
        if opening in self._known:
            self._known.remove(opening)
            self._size -= len(opening.text)
