"""Trace and span ids, and the W3C trace context that carries them."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import NamedTuple

_CHUNK_BYTES = 4096
_TRACEPARENT = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_TRACESTATE_LIMIT = 512  # characters; the specification lets longer ones be dropped


class IdSource:
    """Random lower-case hex, cut from a buffer: one system call per few hundred ids.

    One per process: build it after a fork, or both sides hand out the same ids.
    """

    __slots__ = ("_at", "_entropy", "_text")

    def __init__(self, entropy: Callable[[int], bytes] = os.urandom) -> None:
        self._entropy = entropy
        self._text = ""
        self._at = 0

    def hex(self, digits: int) -> str:
        """`digits` (at most 64) fresh hex digits."""
        at = self._at
        end = at + digits
        if end > len(self._text):
            self._text = self._entropy(_CHUNK_BYTES).hex()
            at, end = 0, digits
        self._at = end
        return self._text[at:end]


class TraceContext(NamedTuple):
    """A caller's span: 32 and 16 hex digits, whether it is recorded, and the vendors' state."""

    trace_id: str
    span_id: str
    sampled: bool
    state: str = ""


def parse_context(traceparent: str | None, tracestate: str | None = None) -> TraceContext | None:
    """Read the W3C headers; None when `traceparent` is missing or malformed, and then the state is void too.

    A later version than 00 may carry more fields, which are ignored.
    """
    match = _TRACEPARENT.fullmatch(traceparent) if traceparent else None
    if match is None:
        return None
    version, trace_id, span_id, flags, more = match.groups()
    if version == "ff" or (version == "00" and more) or not trace_id.strip("0") or not span_id.strip("0"):
        return None
    state = tracestate if tracestate and len(tracestate) <= _TRACESTATE_LIMIT else ""
    return TraceContext(trace_id, span_id, bool(int(flags, 16) & 1), state)


def format_traceparent(trace_id: str, span_id: str, *, sampled: bool) -> str:
    """The `traceparent` header of a call made under span `span_id`."""
    return "00-" + trace_id + "-" + span_id + ("-01" if sampled else "-00")
