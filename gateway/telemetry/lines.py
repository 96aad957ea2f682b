"""Log lines written by a thread, so that a reader who is slow or stuck never stalls the event loop."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable

_BATCH_LINES = 512


def write_to(descriptor: int) -> Callable[[bytes], None]:
    """A function that writes all it is given to a file descriptor."""

    def write(data: bytes) -> None:
        view = memoryview(data)
        while view:
            written = os.write(descriptor, view)
            view = view[written:]

    return write


class LineWriter:
    """A bounded queue of lines and the thread that writes them. Lines over the bound are dropped and counted.

    `write` may be called from any thread and never blocks. `close` gives what is queued `timeout_s` to leave.
    """

    __slots__ = ("_closing", "_failed", "_limit", "_lines", "_period_s", "_refused", "_sink", "_wake", "_writer")

    def __init__(self, sink: Callable[[bytes], None], *, limit: int = 32_768, period_s: float = 0.1) -> None:
        """`limit` is in lines; `period_s` is how long a line may wait for others to share a system call."""
        self._sink = sink
        self._limit = limit
        self._period_s = period_s
        self._lines: deque[bytes] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._writer = threading.Thread(target=self._run, name="headrace-log", daemon=True)
        self._refused = 0  # counted by writers
        self._failed = 0  # counted by the thread

    def start(self) -> None:
        """Start writing."""
        self._writer.start()

    def write(self, line: bytes) -> None:
        """Queue one line, newline included."""
        if len(self._lines) < self._limit:
            self._lines.append(line)
        else:
            self._refused += 1

    @property
    def dropped(self) -> int:
        """Lines lost because the queue was full or the sink broken."""
        return self._refused + self._failed

    def flush(self) -> None:
        """Ask for what is queued to be written now; does not wait."""
        self._wake.set()

    def close(self, timeout_s: float = 2.0) -> None:
        """Write what is queued and end the thread. A stuck sink is given up on after `timeout_s`."""
        self._closing = True
        self._wake.set()
        if self._writer.is_alive():
            self._writer.join(timeout_s)

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(self._period_s)
            self._wake.clear()
            self._drain()
        self._drain()

    def _drain(self) -> None:
        lines = self._lines
        while lines:
            batch = [lines.popleft() for _ in range(min(len(lines), _BATCH_LINES))]
            try:
                self._sink(b"".join(batch))
            except OSError:  # the reader is gone; there is nowhere left to say so but the counter
                self._failed += len(batch)
