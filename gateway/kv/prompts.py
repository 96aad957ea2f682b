"""What of an engine request decides where its prompt is cached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from gateway.dialects.chunk import decode_fields
from gateway.dialects.model import Request
from gateway.dialects.registry import EngineRequest
from tiering.hashing.scheme import PLAIN, Extras
from tiering.plan import Prompt

_decode = msgspec.json.decode
_QUOTE = b'"'


def prompt_of(asked: Request, sent: EngineRequest, model: str, tenant: str) -> Prompt | None:
    """The prompt in `sent`; None when there is none to look up (no messages and no text)."""
    fields = decode_fields(sent.body)
    if fields is None:
        return None
    salt = fields.get("cache_salt")
    extras = Extras(salt=_decode(salt)) if salt is not None else PLAIN
    tools = bytes(fields.get("tools", b""))
    if "messages" in fields:
        messages = fields["messages"]
        return Prompt(
            model=model,
            tenant=tenant,
            dialect=asked.dialect,
            segments=(bytes(messages)[:-1],),  # without the bracket that ends every list: the next turn goes on there
            tools=tools,
            messages=lambda: _decode(messages),
            variables=_Variables(fields),
            extras=extras,
        )
    text = bytes(fields.get("prompt", b""))
    if not text.startswith(_QUOTE):
        return None
    return Prompt(model, tenant, asked.dialect, (text[:-1],), extras=extras)


class _Variables(Mapping[str, Any]):
    """Arguments of the chat template, decoded when somebody renders it."""

    __slots__ = ("_fields", "_read")

    def __init__(self, fields: dict[str, msgspec.Raw]) -> None:
        self._fields = fields
        self._read: dict[str, Any] | None = None

    def _all(self) -> dict[str, Any]:
        if self._read is None:
            fields, read = self._fields, {}
            if "tools" in fields:
                read["tools"] = _decode(fields["tools"])
            if "reasoning_effort" in fields:
                read["reasoning_effort"] = _decode(fields["reasoning_effort"])
            if "chat_template_kwargs" in fields:
                read |= _decode(fields["chat_template_kwargs"]) or {}
            self._read = read
        return self._read

    def __getitem__(self, name: str) -> Any:
        return self._all()[name]

    def __iter__(self) -> Any:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())
