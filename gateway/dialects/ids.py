"""Identifiers of one exchange. They survive a retry: the client sees one id whatever attempt answers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from backends.contracts import DialectName, Random

_PREFIX: dict[DialectName, tuple[str, int]] = {
    "chat": ("chatcmpl-", 24),
    "completions": ("cmpl-", 24),
    "responses": ("resp_", 48),
    "messages": ("msg_", 24),
}


def maker(random: Random) -> Callable[[str, int], str]:
    """A function `(prefix, digits)` that makes identifiers: prefix and that many hex digits."""

    def new(prefix: str, digits: int = 24) -> str:
        return prefix + format(random.randrange(1 << (4 * digits)), f"0{digits}x")

    return new


@dataclass(slots=True)
class Ids:
    """What every attempt of one exchange must agree on. Made once per exchange by `Ids.create`."""

    answer: str  # id of the completion, response or message
    created: int  # seconds since the epoch
    request: str  # request id, for mid-stream errors on Messages
    new: Callable[[str, int], str] = field(repr=False)
    opened: bool = False  # the stream's opening events (message_start, response.created) went to the client
    sequence: int = 0  # next sequence_number on Responses

    @classmethod
    def create(cls, dialect: DialectName, created: int, request_id: str, random: Random) -> Ids:
        """Ids for one exchange in `dialect`."""
        new = maker(random)
        return cls(new(*_PREFIX[dialect]), created, request_id, new)

    def call(self) -> str:
        """An id for a tool call that the engine left without a usable one."""
        return self.new("call_", 24)
