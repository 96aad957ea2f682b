"""Stop strings on the answer only: exact trimming, with nothing shown that may turn out to be part of one."""

from __future__ import annotations

from collections.abc import Sequence


class StopMatcher:
    """Finds the earliest match of any stop (the longest of those that begin there) in text that comes in pieces."""

    __slots__ = ("_held", "_hold", "_keep", "_stops", "matched")

    def __init__(self, stops: Sequence[str], *, keep: bool = False) -> None:
        """`keep`: the matched text stays in the answer (include_stop_str_in_output)."""
        self._stops = sorted(stops, key=len, reverse=True)
        self._hold = max(map(len, stops)) - 1
        self._keep = keep
        self._held = ""
        self.matched: str | None = None

    def feed(self, text: str) -> str:
        """The part of the answer that is certain now. Sets `matched`; from then on the answer has ended.

        A match waits while a stop that begins before it, or a longer one at its place, may still become whole: so
        the outcome does not depend on how the text is cut.
        """
        if self.matched is not None:
            return ""
        text = self._held + text
        found = self._find(text)
        open_from = len(text) - self._pending(text)
        if found is not None and open_from > found[0]:
            return self._match(text, *found)
        self._held = text[open_from:]
        return text[:open_from]

    def flush(self) -> str:
        """What was held back, now that the answer has ended. May set `matched`."""
        held, self._held = self._held, ""
        found = self._find(held)
        return held if found is None else self._match(held, *found)

    def _find(self, text: str) -> tuple[int, str] | None:
        found = min(
            ((place, -len(stop), stop) for stop in self._stops if (place := text.find(stop)) >= 0), default=None
        )
        return None if found is None else (found[0], found[2])

    def _match(self, text: str, place: int, stop: str) -> str:
        self._held = ""
        self.matched = stop
        return text[: place + len(stop)] if self._keep else text[:place]

    def _pending(self, text: str) -> int:
        """Length of the longest suffix of `text` that begins some stop."""
        for length in range(min(self._hold, len(text)), 0, -1):
            suffix = text[-length:]
            if any(stop.startswith(suffix) for stop in self._stops):
                return length
        return 0
