"""What is known of one client request while it is served, and who joins it to what is stored beyond it."""

from __future__ import annotations

from typing import Protocol

from backends.contracts import Decision
from gateway.auth import Identity
from gateway.config.model import Model
from gateway.dialects.base import Transcoder
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions, Dialect
from gateway.eligible import Eligible
from gateway.runtime import Runtime
from gateway.stream import ClientStream
from gateway.telemetry.record import ExchangeRecord
from tiering.plan import Expected, Plan


class Exchange:
    """One client request with everything done for it."""

    __slots__ = (
        "asked",
        "decision",
        "dialect",
        "eligible",
        "home",
        "identity",
        "ids",
        "keeper",
        "model",
        "plan",
        "policy",
        "promised",
        "record",
        "runtime",
        "session",
        "spoke",
        "stream",
        "transcoder",
    )

    asked: Request
    decision: Decision  # the newest; its first replica is the one of the attempt
    eligible: Eligible
    identity: Identity
    ids: Ids
    model: Model

    def __init__(self, runtime: Runtime, dialect: Dialect, record: ExchangeRecord, stream: ClientStream) -> None:
        self.runtime = runtime
        self.dialect = dialect
        self.record = record
        self.stream = stream
        self.transcoder: Transcoder | None = None  # of the last attempt
        self.spoke = False  # the client has seen part of an answer: no attempt may start over
        self.keeper: Keeper | None = None
        self.home = ""  # id of the replica that served this conversation last
        self.session = ""  # key of the client's own hint at a conversation; "" without one
        self.policy = ""  # routing profile; "" for the default
        self.plan: Plan | None = None  # where the prompt is cached, when the policy asks
        self.promised: Expected | None = None  # what the index promised of the attempt's replica


class Keeper(Protocol):
    """Joins an exchange to what is stored beyond it."""

    async def recall(self, x: Exchange, options: DecodeOptions) -> bool:
        """Add to `x.asked` what was stored earlier. True: the client has its answer, and no attempt is made."""
        ...

    async def keep(self, x: Exchange) -> None:
        """Store what the exchange came to, however it ended (unless the client left). Never raises."""
        ...
