"""Which exchanges are kept as spans."""

from __future__ import annotations

from gateway.telemetry.ids import IdSource, TraceContext
from gateway.telemetry.record import ExchangeRecord

_LOW_64_BITS = 16  # hex digits from the right


class Sampler:
    """Keeps a share of all exchanges, every failed one and every slow one.

    The share is decided on the trace id, as the OpenTelemetry SDKs do, so that all parts of a system keep
    the same traces. A caller that has decided already is followed.
    """

    __slots__ = ("_below", "_slow_s")

    def __init__(self, ratio: float, slow_s: float) -> None:
        """`ratio` in 0..1 of all traces; `slow_s`: seconds from which an exchange is kept anyway."""
        # Compared as text: fixed-length lower-case hex sorts as the numbers do. "g" sorts after every digit.
        self._below = "g" if ratio >= 1 else f"{int(ratio * 2**64):016x}"
        self._slow_s = slow_s

    def sampled(self, trace_id: str) -> bool:
        """Whether a trace that begins here belongs to the share."""
        return trace_id[_LOW_64_BITS:] < self._below

    def start(
        self, ids: IdSource, request_id: str, parent: TraceContext | None, now: float, wall: float
    ) -> ExchangeRecord:
        """The record of a new exchange, in the caller's trace if there is one."""
        fresh = ids.hex(48)
        span_id = fresh[32:]
        if parent is None:
            trace_id = fresh[:32]
            return ExchangeRecord(
                ids, request_id, trace_id, span_id, "", "", trace_id[_LOW_64_BITS:] < self._below, now, wall
            )
        return ExchangeRecord(
            ids, request_id, parent.trace_id, span_id, parent.span_id, parent.state, parent.sampled, now, wall
        )

    def keeps(self, record: ExchangeRecord) -> bool:
        """Whether a finished exchange becomes spans."""
        return record.sampled or record.failed or record.ended - record.started >= self._slow_s
