"""Client streams that are not simply a connection: one that holds its end back, and one without a connection."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from gateway.dialects.sse import Frames
from gateway.stream import HIGH_WATER, LOW_WATER, ClientStream


class HeldStream(ClientStream):
    """Keeps everything from the final resource on until `release`: who reads it finds the response stored."""

    __slots__ = ("_final", "_held")

    def __init__(self, transport: asyncio.Transport | None, *, chunked: bool = True, close: bool = False) -> None:
        super().__init__(transport, chunked=chunked, close=close)
        self._final: Callable[[], bool] = lambda: False
        self._held = b""

    def hold_from(self, final: Callable[[], bool]) -> None:
        """Hold back what is written once `final` says that the answer is whole."""
        self._final = final

    def release(self) -> None:
        """Send what was held back."""
        self._final = lambda: False
        held, self._held = self._held, b""
        self._write(held)

    def send(self, data: bytes) -> bool:
        """Send some of a streamed answer, or hold it back."""
        if not self._final():
            return super().send(data)
        self._held += self._framed(data)
        return False

    def _write(self, data: bytes) -> None:
        if self._final():
            self._held += data
        else:
            super()._write(data)


class DetachedStream(ClientStream):
    """An answer for whoever takes its events, or `refusal` when there were none.

    What waits to be taken is bounded as it is on a connection: the engine is paused.
    """

    __slots__ = ("_arrived", "_blocks", "_frames", "_left", "_waiting", "refusal")

    def __init__(self) -> None:
        super().__init__(None, chunked=False)
        self._frames = Frames()
        self._blocks: list[bytes] = []
        self._waiting = 0  # bytes in `_blocks`
        self._arrived = asyncio.Event()
        self._left = False
        self.refusal = b""  # the body of an answer that is no stream: an error

    def leave(self) -> None:
        """Nobody takes any more."""
        self._left = True

    def take(self) -> list[bytes]:
        """The events since the last call, as blocks of SSE without the blank line."""
        blocks, self._blocks = self._blocks, []
        self._waiting = 0
        self._arrived.clear()
        return blocks

    @property
    def pending(self) -> bool:
        """Whether there are events that nobody has taken."""
        return bool(self._blocks)

    async def arrival(self) -> None:
        """Wait until there is something to take or the answer has ended."""
        await self._arrived.wait()

    def close(self) -> None:
        """Nothing more comes; wakes whoever waits."""
        self.ended = True
        self._arrived.set()

    @property
    def gone(self) -> bool:
        """Whether nobody listens any more."""
        return self._left

    @property
    def flowing(self) -> bool:
        """Whether a paused engine may go on."""
        return self._waiting <= LOW_WATER

    def whole(self, status: int, content_type: bytes, body: bytes, date: bytes, *, head_only: bool = False) -> None:  # noqa: ARG002
        """An answer that is no stream is an error: a stream was asked for."""
        self.committed, self.status, self.refusal = True, status, body
        self.close()

    def begin(self, content_type: bytes, date: bytes, first: bytes) -> None:  # noqa: ARG002
        """The first events."""
        self.committed, self.status = True, 200
        self.send(first)

    def send(self, data: bytes) -> bool:
        """Some events. True: so much waits to be taken that the engine should be paused."""
        self.sent_bytes += len(data)
        blocks = self._frames.feed(data)
        if blocks:
            self._blocks += blocks
            self._waiting += sum(map(len, blocks))
            self._arrived.set()
        return self._waiting > HIGH_WATER

    def end(self, last: bytes = b"") -> None:
        """The last events."""
        self.send(last)
        self.close()
