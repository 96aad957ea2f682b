"""What a dialect offers the pipeline, and the write-once table of dialects.

The pipeline's part in an exchange:

    dialect = dialects["messages"]
    request = dialect.decode_request(body, headers, options)  # GatewayError names the field; request.traits filters
    target = Target(...)  # per attempt, from the chosen pool's contract
    sent = dialect.encode_engine_request(request, target)  # POST sent.path with sent.body; sent.headers to client
    answer = dialect.transcoder(request, sent, target, ids, seal)  # one per attempt; `ids` and `seal` per exchange
    ... answer.feed(engine bytes) -> client bytes ...; answer.eof()
    status, headers, body = dialect.encode_error(error, request_id)

`feed` hands out nothing before something semantic came (`started`): commit the 200 with the first bytes it returns, or
with the first `keepalive()`. A retry after a heartbeat goes on with the same `ids`: opening events are not repeated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Protocol

import msgspec

from backends.contracts import DialectName
from gateway.dialects.base import Transcoder
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import GatewayError


@dataclass(frozen=True, slots=True)
class DecodeOptions:
    """What a dialect must know of the tenant and the gateway to read a request."""

    seal: Seal | None = None  # opens reasoning that this gateway sealed earlier; None: every blob is foreign
    grants: frozenset[str] = frozenset()  # engine-steering fields this tenant may send
    choices: int = 16  # the largest `n`
    store: bool = False  # Responses are stored: `previous_response_id` and `background` may be used
    video: bool = False  # some pool takes video
    strict_prefill: bool = False  # refuse a trailing assistant turn on Messages instead of naming it as ignored


class EngineRequest(msgspec.Struct):
    """What goes to the engine, and what the client is told about it."""

    path: str
    body: bytes
    stream: bool  # the engine streams: also for clients that do not, when stops are matched by the gateway
    effort: str | None = None  # as sent
    hide_reasoning: bool = False  # the client must not see reasoning
    adapted: tuple[str, ...] = ()  # -> x-gateway-adapted
    headers: dict[str, str] = {}  # x-gateway-* for the client
    generates: bool = True  # False: the engine only tokenizes, which is no load and has no first token


class Dialect(Protocol):
    """One client dialect. Stateless; `name` is its key in the registry."""

    name: DialectName

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """Read a request. `headers` has lower-case keys. Raises GatewayError naming the field at fault."""
        ...

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """Write the request for the chosen pool. Raises GatewayError when this pool cannot be asked for it."""
        ...

    def transcoder(self, request: Request, sent: EngineRequest, target: Target, ids: Ids, seal: Seal) -> Transcoder:
        """The transcoder of one attempt at `sent`."""
        ...

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body of an error before the first byte."""
        ...


class Registry:
    """Write-once table of dialects; a duplicate name raises."""

    __slots__ = ("_dialects",)

    def __init__(self) -> None:
        self._dialects: dict[DialectName, Dialect] = {}

    def register(self, dialect: Dialect) -> None:
        """Add a dialect under its name."""
        if dialect.name in self._dialects:
            raise ValueError(f"dialect {dialect.name!r} is registered twice")
        self._dialects[dialect.name] = dialect

    def __getitem__(self, name: DialectName) -> Dialect:
        return self._dialects[name]

    def __iter__(self) -> Iterator[DialectName]:
        return iter(self._dialects)


def standard() -> Registry:
    """All four dialects."""
    from gateway.dialects.chat import Chat
    from gateway.dialects.completions import Completions
    from gateway.dialects.messages import Messages
    from gateway.dialects.responses import Responses

    registry = Registry()
    for dialect in (Chat(), Completions(), Responses(), Messages()):
        registry.register(dialect)
    return registry
