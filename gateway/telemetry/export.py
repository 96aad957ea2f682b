"""Kept exchanges on their way to an OTLP collector: a bounded queue and the thread that empties it."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from backends.contracts import Candidate
from gateway.lean import import_requests
from gateway.telemetry.record import ExchangeRecord

if TYPE_CHECKING:
    from gateway.telemetry.spans import Otlp

_BATCH = 32  # exchanges per call
_REST_S = 0.0005  # before each, while the queue is short: encoding must not hold a core for long
_FIRST_S = 0.5  # from the start to the loading of the SDK: a tenth of a second of work that can wait


class Kept(NamedTuple):
    """An exchange that becomes spans, with its decision's evidence."""

    record: ExchangeRecord
    candidates: tuple[Candidate, ...]


class ExportCounts:
    """What became of kept exchanges, over all exporters a process has had."""

    __slots__ = ("exported", "failed", "refused")

    def __init__(self) -> None:
        self.exported = 0
        self.failed = 0  # the collector did not take them
        self.refused = 0  # the queue was full

    @property
    def dropped(self) -> int:
        """Exchanges that no collector has."""
        return self.failed + self.refused


class SpanExporter:
    """Sends kept exchanges to a collector from a thread of its own.

    A collector that is slow or down fills the queue, and what does not fit is dropped and counted: nothing
    here ever waits for it but `close`, for `timeout_s` at most. The OpenTelemetry SDK is imported in that
    thread and not at once, so that a gateway without a collector never loads it and one with a collector starts as
    fast.
    """

    __slots__ = (
        "_closing", "_counts", "_limit", "_otlp", "_period_s", "_queue", "_resource", "_thread", "_wake",
        "endpoint",
    )  # fmt: skip

    def __init__(
        self,
        endpoint: str,
        resource: Mapping[str, str],
        counts: ExportCounts,
        *,
        limit: int = 2048,
        period_s: float = 0.5,
    ) -> None:
        """`endpoint` is the base URL of OTLP/HTTP; `resource` the attributes of this process."""
        self.endpoint = endpoint
        self._resource = resource
        self._counts = counts
        self._limit = limit
        self._period_s = period_s
        self._queue: deque[Kept] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._otlp: Otlp | None = None
        self._thread = threading.Thread(target=self._run, name="headrace-otlp", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def offer(self, kept: Kept) -> None:
        """Queue one exchange, or drop it when the queue is full."""
        if len(self._queue) < self._limit:
            self._queue.append(kept)
        else:
            self._counts.refused += 1

    def stop(self) -> None:
        """Let the thread send what is queued and end; does not wait."""
        self._closing = True
        self._wake.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """Stop, and give what is queued `timeout_s` to be sent."""
        self.stop()
        if self._thread.is_alive():
            self._thread.join(timeout_s)
        if self._otlp is not None and self._thread.is_alive():
            self._otlp.shutdown()  # wakes the thread from waiting for its next try

    def _run(self) -> None:
        self._wake.wait(_FIRST_S)
        import_requests()
        from gateway.telemetry.spans import Otlp

        self._otlp = otlp = Otlp(self.endpoint, self._resource)
        while not self._closing:
            self._wake.wait(self._period_s)
            self._drain(otlp)
        self._drain(otlp)
        otlp.shutdown()

    def _drain(self, otlp: Otlp) -> None:
        queue = self._queue
        while queue:
            batch: Sequence[Kept] = [queue.popleft() for _ in range(min(len(queue), _BATCH))]
            hurry = self._closing or 2 * len(queue) > self._limit
            if otlp.send(batch, 0.0 if hurry else _REST_S):
                self._counts.exported += len(batch)
            else:
                self._counts.failed += len(batch)
