"""What one exchange leaves behind: timestamps and facts, and nothing that costs before it is kept."""

from __future__ import annotations

from collections.abc import Mapping

from backends.contracts import Decision, Fault, Replica
from gateway.telemetry.ids import IdSource, format_traceparent

Value = str | int | float | bool
Event = tuple[float, str, Mapping[str, Value]]


class AttemptRecord:
    """One try at one replica. Times are monotonic seconds; 0.0 means it did not happen."""

    connected: float = 0.0
    first_byte: float = 0.0
    ended: float = 0.0
    status: int = 0  # the engine's HTTP status
    fault: Fault | None = None
    message: str = ""  # of the failure; scrubbed by whoever made it
    received_bytes: int = 0
    prefill: AttemptRecord | None = None  # the other side, when this one only decoded

    def __init__(self, replica: Replica, engine: str, span_id: str, started: float) -> None:
        """`engine` is the kind of engine."""
        self.replica = replica
        self.engine = engine
        self.span_id = span_id
        self.started = started


class ExchangeRecord:
    """One exchange. Times are monotonic seconds; 0.0 means it did not happen. Holds no prompt, answer or secret.

    The pipeline assigns facts as it learns them; `Telemetry.finish` turns them into metrics, a log line and,
    when kept, spans.
    """

    # the request
    endpoint: str = ""
    dialect: str = ""
    client: str = ""  # peer address
    tenant: str = ""
    key_id: str = ""
    model: str = ""  # as the client named it
    resolved: str = ""  # the configured model; "" when there is none by that name
    stream: bool = False
    received_bytes: int = 0
    # the decision
    deciding: float = 0.0
    decided: float = 0.0
    decision: Decision | None = None
    # the attempts and the answer
    first_token: float = 0.0
    ended: float = 0.0
    status: int = 0  # HTTP status of the answer; 499 when the client left before it was complete
    finish_reason: str = ""
    error: str = ""  # cause in one word or code, "" for success
    sent_bytes: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    adaptations: tuple[str, ...] = ()
    events: list[Event] | None = None

    def __init__(
        self,
        ids: IdSource,
        request_id: str,
        trace_id: str,
        span_id: str,
        parent_id: str,
        tracestate: str,
        sampled: bool,
        started: float,
        wall: float,
    ) -> None:
        """`parent_id` is "" for a trace that begins here; `wall` is `started` in Unix seconds.

        `sampled`: kept whatever happens. Errors and slow exchanges are kept besides.
        """
        self.ids = ids
        self.request_id = request_id
        self.trace_id = trace_id
        self.span_id = span_id
        self.parent_id = parent_id
        self.tracestate = tracestate
        self.sampled = sampled
        self.started = started
        self.wall = wall
        self.attempts: list[AttemptRecord] = []

    def attempt(self, replica: Replica, engine: str, now: float) -> AttemptRecord:
        """Begin the next attempt."""
        attempt = AttemptRecord(replica, engine, self.ids.hex(16), now)
        self.attempts.append(attempt)
        return attempt

    def traceparent(self, attempt: AttemptRecord) -> str:
        """The header to send with `attempt`, so that the engine's spans hang below it."""
        return format_traceparent(self.trace_id, attempt.span_id, sampled=self.sampled)

    def event(self, name: str, now: float, attributes: Mapping[str, Value]) -> None:
        """Note something that happened between the attempts, e.g. a retry denied by the budget."""
        if self.events is None:
            self.events = []
        self.events.append((now, name, attributes))

    @property
    def pool(self) -> str:
        """Pool of the last attempt, "" when nothing was sent."""
        return self.attempts[-1].replica.pool if self.attempts else ""

    @property
    def failed(self) -> bool:
        """Whether the client got an error or a broken answer."""
        return self.status >= 400 or self.error != ""
