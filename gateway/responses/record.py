"""A stored response: what it was asked, what it answered, and where its conversation goes on."""

from __future__ import annotations

import re
from typing import Any

import msgspec

_ID = re.compile(r"resp_[0-9a-f]{48}")
FINISHED = frozenset({"completed", "incomplete", "failed", "cancelled"})
CONTINUABLE = frozenset({"completed", "incomplete"})

Item = dict[str, Any]


class Record(msgspec.Struct):
    """One turn. Earlier turns are named, not repeated: a conversation of N turns takes N records of its own text."""

    response: dict[str, Any]  # the resource, as the client got it
    items: list[Item]  # the input items of this turn
    chain: list[str] = []  # ids of the turns before, oldest first
    home: str = ""  # id of the replica that answered
    streamed: bool = False  # in the background, with events to be replayed
    batches: int = 0  # of those events; final once the response has finished

    @property
    def id(self) -> str:
        """The response's id."""
        return str(self.response["id"])

    @property
    def status(self) -> str:
        """`queued`, `in_progress`, or how it finished."""
        return str(self.response["status"])

    @property
    def background(self) -> bool:
        """Whether it was asked to run without its client."""
        return bool(self.response.get("background"))

    @property
    def turn(self) -> list[Item]:
        """Input and output, as the next turn sees them."""
        return [*self.items, *self.response["output"]]


_decoder = msgspec.json.Decoder(Record)


def encode(record: Record) -> bytes:
    """A record as the store keeps it."""
    return msgspec.json.encode(record)


def decode(value: bytes) -> Record:
    """The reverse of `encode`."""
    return _decoder.decode(value)


def is_response_id(text: str) -> bool:
    """Whether this can be the id of a stored response: any other is unknown without a look."""
    return _ID.fullmatch(text) is not None
