"""What the pipeline asks of a codec."""

from __future__ import annotations

from typing import Protocol

import msgspec

from backends.contracts import EngineFailure
from gateway.errors import GatewayError


class Usage(msgspec.Struct):
    """Tokens of one exchange. `prompt` includes `cached`; `completion` includes `reasoning`."""

    prompt: int = 0
    completion: int = 0
    cached: int | None = None  # None: the engine did not say
    cache_write: int | None = None
    reasoning: int = 0
    estimated: bool = False


class Transcoder(Protocol):
    """Turns one attempt's answer into client bytes. One is made per attempt; it holds no socket.

    `feed` gets the engine's body bytes in any split and returns what may go to the client now (often the same
    object, often b""). For an answer that is not streamed everything comes from `eof`.
    """

    failure: EngineFailure | None  # the engine's own error in a 200 answer, or a truncated one (set by `eof`)
    started: bool  # something semantic (a delta, an error) was seen: before this, another attempt may be made
    finished: bool  # every choice has its finish reason
    abort_engine: bool  # the client has all it will get (a stop matched): the engine need not go on
    usage: Usage | None
    finish: str | None  # canonical stop reason of choice 0, for the trace

    def feed(self, data: bytes) -> bytes:
        """Engine body bytes in, client body bytes out. After `failure` is set it returns b""."""
        ...

    def eof(self) -> bytes:
        """The engine's body is complete; the rest for the client. Sets `failure` when no finish reason came."""
        ...

    def fail(self, error: GatewayError) -> bytes:
        """End a stream that was already committed, in the dialect's own form of a mid-stream error."""
        ...

    def keepalive(self) -> bytes:
        """A heartbeat in the dialect's form, safe between two events; b"" where the dialect has none."""
        ...


class ErrorEncoder(Protocol):
    """Writes an error before the first byte."""

    def __call__(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers (content type and retry hints included) and body."""
        ...
