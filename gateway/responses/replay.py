"""The events of a background response, from the store to a client: what there is, then what comes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import msgspec

from gateway.attempt import EVENT_STREAM
from gateway.dialects.sse import payload
from gateway.responses.library import Library
from gateway.responses.record import FINISHED, Record
from gateway.state.base import StateUnavailable
from gateway.stream import ClientStream, flowing

_LOOK_S = 0.1
_SLOW_S = 120.0  # for a client that does not read


class _Numbered(msgspec.Struct):
    sequence_number: int = -1


_numbered = msgspec.json.Decoder(_Numbered)


class Replay:
    """Follows event streams. It looks at the store, so that any gateway can follow what another one runs."""

    def __init__(self, date: Callable[[], bytes], current: Callable[[Library, Record], Awaitable[Record]]) -> None:
        """`current` brings a record up to date with who runs it."""
        self._date = date
        self._current = current

    async def follow(self, stream: ClientStream, library: Library, record: Record, after: int) -> None:
        """Send the events with numbers above `after`, until the last one or until the client leaves."""
        stream.begin(EVENT_STREAM, self._date(), b"")
        try:
            await self._send(stream, library, record, after)
        except StateUnavailable:
            return  # an end without a terminal event: the client comes back with `starting_after`
        if not stream.gone:
            stream.end()

    async def _send(self, stream: ClientStream, library: Library, record: Record, after: int) -> None:
        number = 0
        while not stream.gone:
            events = await library.events(record.id, number)
            if events is not None:
                number += 1
                rest = _above(events, after)
                if rest and stream.send(rest) and not await flowing(stream, _SLOW_S):
                    return
                continue
            found = await library.find(record.id)
            record = await self._current(library, found) if found is not None else record
            if found is None or (record.status in FINISHED and number >= record.batches):
                return
            await asyncio.sleep(_LOOK_S)


def _above(events: bytes, after: int) -> bytes:
    if after < 0:
        return events
    blocks = [block for block in events.split(b"\n\n") if block]
    return b"".join(block + b"\n\n" for block in blocks if _numbered.decode(payload(block)).sequence_number > after)
