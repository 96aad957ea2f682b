"""What every gateway has in flight, told to the others over one short Redis stream."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec
import structlog
from redis.asyncio import Redis
from redis.exceptions import RedisError

from backends.contracts import Clock, FleetSnapshot
from gateway.state.cancelling import heeding
from policies.inflight import PeerLoad, PeerTable

log = structlog.get_logger("headrace.state")

STREAM: Final = "headrace:inflight"
STREAM_LENGTH: Final = 1000  # messages kept: seconds of traffic of many gateways
PUBLISH_S: Final = 0.25
HEARTBEAT_S: Final = 1.0  # said again though nothing changed, well before peers call us silent
PAUSE_S: Final = 1.0  # after a failure
_LIMIT_S: Final = 2.0  # of one command, the wait for news included
_BLOCK_MS: Final = 1000

Totals = dict[str, tuple[int, int, int]]  # replica id -> exchanges, prefill tokens, context tokens


class _Message(msgspec.Struct, array_like=True):
    gateway: str
    sequence: int
    loads: Totals


class InflightExchange:
    """Publishes our totals and collects those of others into a `PeerTable`. Routing goes on without it.

    Totals, not differences: a lost message heals with the next one.
    """

    def __init__(
        self, url: str, gateway: str, snapshot: Callable[[], FleetSnapshot], peers: PeerTable, clock: Clock
    ) -> None:
        """`gateway` is unique to this process; its numbering of messages starts anew with it."""
        self._client: Redis = Redis.from_url(url, socket_timeout=_LIMIT_S, socket_connect_timeout=1.0)
        self._gateway = gateway
        self._snapshot = snapshot
        self._peers = peers
        self._clock = clock
        self._sequence = 0
        self._said: Totals = {}
        self._said_s = float("-inf")
        self._last = "$"  # of the stream: only what comes from now on

    async def publish(self) -> None:
        """Tell our totals now and then; runs until cancelled."""
        while True:
            await self._guarded(self.publish_once)
            await asyncio.sleep(PUBLISH_S)

    async def listen(self) -> None:
        """Take in what others tell; runs until cancelled."""
        while True:
            await self._guarded(self.listen_once)
            self._peers.forget_stale(self._clock.monotonic())

    async def publish_once(self) -> None:
        """Tell our totals when they changed or were not told for a while. Raises RedisError or OSError."""
        now_s = self._clock.monotonic()
        totals = _totals(self._snapshot())
        if totals == self._said and now_s - self._said_s < HEARTBEAT_S:
            return
        self._sequence += 1
        payload = msgspec.msgpack.encode(_Message(self._gateway, self._sequence, totals))
        await self._client.xadd(STREAM, {"m": payload}, maxlen=STREAM_LENGTH, approximate=True)
        self._said, self._said_s = totals, now_s

    async def listen_once(self) -> None:
        """Wait up to a second for news and take them in. Raises RedisError or OSError."""
        answer: Any = await self._client.xread({STREAM: self._last}, count=STREAM_LENGTH, block=_BLOCK_MS)
        for _, messages in answer or ():
            for key, fields in messages:
                self._last = key.decode()
                self._take(fields.get(b"m", b""))

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.aclose()

    def _take(self, payload: bytes) -> None:
        try:
            message = msgspec.msgpack.decode(payload, type=_Message)
        except msgspec.MsgspecError:
            log.warning("a gateway told its load in a form we do not know")
            return
        if message.gateway != self._gateway:
            loads = {replica: PeerLoad(*load) for replica, load in message.loads.items()}
            self._peers.update(message.gateway, message.sequence, loads, self._clock.monotonic())

    async def _guarded(self, step: Callable[[], Awaitable[None]]) -> None:
        try:
            await heeding(step())
        except (RedisError, OSError, TimeoutError) as error:
            # The text of the error may hold the address with its password.
            log.warning("in-flight exchange does not answer", error=type(error).__name__)
            await asyncio.sleep(PAUSE_S)


def _totals(snapshot: FleetSnapshot) -> Totals:
    """Our counters by replica, those that are not zero."""
    table = snapshot.table
    out = {}
    for replica in snapshot.replicas:
        row = replica.row
        load = (table.exchanges[row], table.prefill_tokens[row], table.context_tokens[row])
        if any(load):
            out[replica.id] = load
    return out
