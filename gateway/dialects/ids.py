"""Identifiers of one exchange. They survive a retry: the client sees one id whatever attempt answers."""

from __future__ import annotations

from collections.abc import Callable

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


class Ids:
    """What every attempt of one exchange must agree on. Made once per exchange by `Ids.create`."""

    __slots__ = ("_answer", "_dialect", "created", "new", "opened", "request", "sequence")

    def __init__(self, dialect: DialectName, created: int, request: str, new: Callable[[str, int], str]) -> None:
        self._dialect = dialect
        self._answer = ""
        self.created = created  # seconds since the epoch
        self.request = request  # request id, for mid-stream errors on Messages
        self.new = new
        self.opened = False  # the stream's opening events (message_start, response.created) went to the client
        self.sequence = 0  # next sequence_number on Responses

    @classmethod
    def create(cls, dialect: DialectName, created: int, request_id: str, random: Random) -> Ids:
        """Ids for one exchange in `dialect`."""
        return cls(dialect, created, request_id, maker(random))

    @property
    def answer(self) -> str:
        """Id of the completion, response or message; made when somebody first wants it."""
        if not self._answer:
            self._answer = self.new(*_PREFIX[self._dialect])
        return self._answer

    def call(self) -> str:
        """An id for a tool call that the engine left without a usable one."""
        return self.new("call_", 24)
