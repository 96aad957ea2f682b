"""Canonical events gathered into a whole answer, in the order in which they came."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from gateway.dialects.events import Counted, End, Event, Refusal, Text, Think, ToolArgs, ToolOpen

Kind = Literal["think", "text", "refusal", "tool"]
_KIND: dict[type, Kind] = {Think: "think", Text: "text", Refusal: "refusal"}


class Item(msgspec.Struct):
    """A run of one kind. `call` only with `tool`, whose pieces are the arguments."""

    kind: Kind
    pieces: list[str]
    call: ToolOpen | None = None
    logprobs: list[Any] = []

    @property
    def text(self) -> str:
        """The whole of it."""
        return "".join(self.pieces)


class Collected:
    """One choice of an answer."""

    __slots__ = ("_calls", "end", "items")

    def __init__(self) -> None:
        self.items: list[Item] = []
        self.end = End("end")
        self._calls: dict[int, Item] = {}

    def take(self, event: Event) -> None:
        """Add one event."""
        if isinstance(event, Think | Text | Refusal):
            item = self._item(_KIND[type(event)])
            item.pieces.append(event.text)
            if isinstance(event, Text) and event.logprobs:
                item.logprobs += event.logprobs
        elif isinstance(event, ToolOpen):
            item = self._calls[event.index] = Item("tool", [], event)
            self.items.append(item)
        elif isinstance(event, ToolArgs):
            self._calls[event.index].pieces.append(event.fragment)
        elif not isinstance(event, Counted):
            self.end = event

    def _item(self, kind: Kind) -> Item:
        if not self.items or self.items[-1].kind != kind:
            self.items.append(Item(kind, []))
        return self.items[-1]

    def joined(self, kind: Kind) -> str:
        """All text of one kind."""
        return "".join(item.text for item in self.items if item.kind == kind)

    def calls(self) -> list[tuple[ToolOpen, str]]:
        """The tool calls with their arguments."""
        return [(item.call, item.text) for item in self.items if item.call is not None]

    def logprobs(self) -> list[Any]:
        """The log probabilities of the answer."""
        return [entry for item in self.items for entry in item.logprobs]
