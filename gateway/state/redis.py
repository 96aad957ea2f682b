"""`redis://`: the store that several gateways share. Valkey serves as well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, cast

import structlog
from redis.asyncio import BlockingConnectionPool, Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from backends.contracts import Clock
from gateway.state import scripts
from gateway.state.base import Entry, Quota, StateTooLarge, StateUnavailable
from gateway.state.cancelling import heeding

log = structlog.get_logger("headrace.state")

PREFIX = "headrace:"
_LIMIT_S = 1.0  # of one command
_CONNECT_S = 1.0
_CONNECTIONS = 64
_WAIT_S = 2.0  # for one of them
_VALUE_LIMIT = 128 * 1024 * 1024
_TRUSTED_S = 1.0  # so long a success stands for the health of the server, and a failure for its absence


class RedisStore:
    """A `StateStore` in Redis. After a failure it fails at once for a second, so that no exchange waits in vain."""

    def __init__(self, url: str, clock: Clock) -> None:
        """Nothing is connected before the first command."""
        self._clock = clock
        connections = BlockingConnectionPool.from_url(  # more commands than connections wait, which is no failure
            url,
            max_connections=_CONNECTIONS,
            timeout=_WAIT_S,
            socket_timeout=_LIMIT_S,
            socket_connect_timeout=_CONNECT_S,
            # A connection that the server closed while it was idle is opened again; anything else fails.
            retry=Retry(NoBackoff(), 1),
        )
        self._client: Redis = Redis.from_pool(connections)
        self._put = self._client.register_script(scripts.PUT)
        self._delete = self._client.register_script(scripts.DELETE)
        self._touch = self._client.register_script(scripts.TOUCH)
        self._add = self._client.register_script(scripts.ADD)
        self._succeeded = self._failed = float("-inf")

    async def get(self, key: str) -> Entry | None:
        """See `StateStore.get`."""
        return (await self.get_many([key]))[0]

    async def get_many(self, keys: Sequence[str]) -> list[Entry | None]:
        """See `StateStore.get_many`."""
        if not keys:
            return []

        async def read() -> list[list[bytes | None]]:
            async with self._client.pipeline(transaction=False) as pipeline:
                for key in keys:
                    pipeline.hmget(PREFIX + key, ["v", "d"])
                return cast("list[list[bytes | None]]", await pipeline.execute())

        rows = await self._do(read)
        return [Entry(value, int(version)) if version and value is not None else None for version, value in rows]

    async def put(
        self, key: str, value: bytes, ttl_s: float, *, version: int | None = None, quota: Quota | None = None
    ) -> int:
        """See `StateStore.put`."""
        if len(value) > min(_VALUE_LIMIT, quota.limit_bytes if quota else _VALUE_LIMIT):
            raise StateTooLarge
        expected = "" if version is None else version
        owner, limit = (quota.owner, quota.limit_bytes) if quota else ("", 0)
        args: list[str | bytes | int] = [PREFIX, value, _ms(ttl_s), expected, owner, limit]
        return int(await self._do(lambda: self._put(keys=[PREFIX + key], args=args)))

    async def delete(self, key: str) -> bool:
        """See `StateStore.delete`."""
        return bool(await self._do(lambda: self._delete(keys=[PREFIX + key], args=[PREFIX])))

    async def touch(self, keys: Sequence[str], ttl_s: float) -> None:
        """See `StateStore.touch`."""
        if keys:
            names = [PREFIX + key for key in keys]
            await self._do(lambda: self._touch(keys=names, args=[PREFIX, _ms(ttl_s)]))

    async def add(self, key: str, amount: int, ttl_s: float) -> int:
        """See `StateStore.add`."""
        name = f"{PREFIX}count:{key}"
        return int(await self._do(lambda: self._add(keys=[name], args=[amount, _ms(ttl_s)])))

    async def ready(self) -> bool:
        """See `StateStore.ready`. Asks the server only when it has not answered for a second."""
        if self._clock.monotonic() - self._succeeded < _TRUSTED_S:
            return True
        try:
            await self._do(self._client.ping)
        except StateUnavailable:
            return False
        return True

    async def aclose(self) -> None:
        """See `StateStore.aclose`."""
        await self._client.aclose()

    async def _do(self, command: Callable[[], Awaitable[Any]]) -> Any:
        if self._clock.monotonic() - self._failed < _TRUSTED_S:
            raise StateUnavailable
        try:
            answer = await heeding(command())
        except (RedisError, OSError, TimeoutError) as error:
            self._failed, self._succeeded = self._clock.monotonic(), float("-inf")
            # The text of the error may hold the address with its password.
            log.warning("state store does not answer", error=type(error).__name__)
            raise StateUnavailable from None
        self._succeeded, self._failed = self._clock.monotonic(), float("-inf")
        return answer


def _ms(seconds: float) -> int:
    return max(1, round(seconds * 1000))
