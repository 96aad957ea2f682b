"""Puts an engine's tool-call fragments in order, whatever the engine does with indexes, ids and names."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from gateway.dialects.events import ToolArgs, ToolOpen
from gateway.dialects.tools import is_object

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


class Function(msgspec.Struct):
    """Name and arguments of a fragment. SGLang's type allows arguments as an object."""

    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class Fragment(msgspec.Struct):
    """One entry of `delta.tool_calls` or `message.tool_calls`."""

    index: int | None = None
    id: str | None = None
    function: Function | None = None


@dataclass(slots=True)
class _Call:
    id: str | None
    name: str = ""
    waiting: list[str] = field(default_factory=list)  # arguments that came before the call could open
    said: list[str] = field(default_factory=list)  # all arguments, of a choice that has strict tools
    index: int | None = None  # set when it opens


class ToolCalls:
    """The calls of one choice. A call opens when it has a name and an argument fragment, or at the end."""

    __slots__ = ("_by_index", "_calls", "_choice", "_new_id", "_strict", "opened")

    def __init__(self, choice: int, new_id: Callable[[], str], strict: frozenset[str] = frozenset()) -> None:
        """`strict` names the tools whose arguments must be JSON objects."""
        self.opened = 0
        self._strict = strict
        self._choice = choice
        self._new_id = new_id
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}  # the engine's index, redirected when it is used twice

    def feed(self, fragment: Fragment) -> list[ToolOpen | ToolArgs]:
        """What this fragment makes certain."""
        function = fragment.function or Function()
        call = self._find(fragment, function)
        if call is None:
            return []
        if call.index is None:
            call.id = call.id or fragment.id
            if function.name and function.name != call.name:
                call.name += function.name
        arguments = function.arguments
        if isinstance(arguments, dict):
            arguments = msgspec.json.encode(arguments).decode()
        if not arguments:
            return []
        if self._strict:
            call.said.append(arguments)
        if call.index is not None:
            return [ToolArgs(call.index, arguments, self._choice)]
        call.waiting.append(arguments)
        return self._open(call) if call.name else []

    def finish(self, *, whole: bool) -> list[ToolOpen | ToolArgs]:
        """Open what is still waiting. `whole`: the answer was not cut, so a call without arguments takes none."""
        events: list[ToolOpen | ToolArgs] = []
        for call in self._calls:
            if call.index is None and call.name:
                if whole and not call.waiting:
                    call.waiting.append("{}")
                events += self._open(call)
        return events

    def broken(self) -> bool:
        """Whether a call of a strict tool has arguments that are no JSON object, given that the answer was not cut."""
        return any(call.said and not is_object("".join(call.said)) for call in self._calls if call.name in self._strict)

    def _find(self, fragment: Fragment, function: Function) -> _Call | None:
        if fragment.index is None:
            known = next((c for c in self._calls if c.id == fragment.id), None) if fragment.id else None
            if fragment.id and known is None:
                return self._add(fragment)
            return known or (self._calls[-1] if self._calls else None)
        call = self._by_index.get(fragment.index)
        renewed = call is not None and fragment.id and function.name and call.id and fragment.id != call.id
        if call is None or renewed:
            call = self._by_index[fragment.index] = self._add(fragment)
        return call

    def _add(self, fragment: Fragment) -> _Call:
        call = _Call(fragment.id)
        self._calls.append(call)
        return call

    def _open(self, call: _Call) -> list[ToolOpen | ToolArgs]:
        call.index = self.opened
        self.opened += 1
        taken = {other.id for other in self._calls if other is not call and other.index is not None}
        if call.id is None or call.id in taken or not _ID.fullmatch(call.id):
            call.id = self._new_id()
        opened: list[ToolOpen | ToolArgs] = [ToolOpen(call.index, call.id, call.name, self._choice)]
        return opened + [ToolArgs(call.index, piece, self._choice) for piece in call.waiting]
