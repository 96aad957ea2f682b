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
        """The part of the answer that is certain now. Sets `matched`; from then on the answer has ended."""
        if self.matched is not None:
            return ""
        text = self._held + text
        found = min(
            ((place, -len(stop), stop) for stop in self._stops if (place := text.find(stop)) >= 0), default=None
        )
        if found is not None:
            place, _, self.matched = found
            self._held = ""
            return text[: place + len(self.matched)] if self._keep else text[:place]
        hold = self._pending(text)
        self._held = text[len(text) - hold :]
        return text[: len(text) - hold]

    def flush(self) -> str:
        """What was held back, when the answer ends without a match."""
        held, self._held = self._held, ""
        return held

    def _pending(self, text: str) -> int:
        """Length of the longest suffix of `text` that begins some stop."""
        for length in range(min(self._hold, len(text)), 0, -1):
            suffix = text[-length:]
            if any(stop.startswith(suffix) for stop in self._stops):
                return length
        return 0
