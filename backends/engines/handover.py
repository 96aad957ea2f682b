"""Prefill/decode pairs: what an engine kind has to say of moving a prompt's KV from one server to another.

A hand-over is tied to two requests by fields of their bodies. Malformed ones end engines, and those of another
request read its memory: so clients' own never get through, whatever they were granted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from msgspec import Raw

Fields = dict[str, Raw]

_NAMES: Final = frozenset({"kv_transfer_params", "ec_transfer_params"})
_PREFIXES: Final = ("bootstrap_", "disagg_")
_NESTED: Final = ("sampling_params", "extra_args", "vllm_xargs")  # objects whose members reach the engine too
_decode = msgspec.json.Decoder(Fields).decode
_encode = msgspec.json.Encoder().encode


@dataclass(frozen=True, slots=True)
class Link:
    """What ties the two requests of one try together. `room` (1 .. 2^63 - 1) is never used again."""

    host: str  # of the prefill server; IPv6 in brackets
    port: int  # of its bootstrap server
    room: int


class Handover(Protocol):
    """One kind's way. Bodies are JSON objects as bytes."""

    together: bool  # both servers get the request at once; else decode's waits for the answer of prefill
    alone: bool  # a decode server also takes requests without a partner

    def divides(self, path: str, body: bytes) -> bool:
        """Whether a pair can serve this request at all; the rest goes to the decode server alone."""
        ...

    def prefill(self, body: bytes, link: Link) -> bytes:
        """What the prefill server is asked for `body`; it answers whole, never streamed."""
        ...

    def decode(self, body: bytes, link: Link, answer: bytes) -> bytes:
        """What the decode server is asked. `answer` is the prefill server's, b"" when both are asked at once.

        Raises EngineFailure when the answer hands nothing over.
        """
        ...


def read(body: bytes) -> Fields:
    """The fields of a body without those that steer a hand-over. Raises msgspec.DecodeError."""
    return _bare(_decode(body))


def written(fields: Mapping[str, Any]) -> bytes:
    """Fields as a body."""
    return _encode(fields)


def bare(body: bytes) -> bytes:
    """A body without the fields that steer a hand-over."""
    return _encode(read(body))


def _bare(fields: Fields) -> Fields:
    kept = {name: value for name, value in fields.items() if name not in _NAMES and not name.startswith(_PREFIXES)}
    for name in _NESTED:
        if name in kept and bytes(kept[name]).lstrip()[:1] == b"{":
            kept[name] = Raw(_encode(_bare(_decode(kept[name]))))
    return kept
