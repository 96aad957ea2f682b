"""Names to addresses for fetches: only what is allowed comes out, and the connection goes to just that address.

The connector connects to the very answer that was checked here, so that a name cannot change its mind in between.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.media.addresses import AddressRule, public

_THREADS: Final = 16


class AddressRefusedError(OSError):
    """A name resolves to an address that media may not come from."""


class CheckedResolver(AbstractResolver):
    """Wraps a resolver; a name with any address that is not allowed is refused whole."""

    __slots__ = ("_allowed", "_inner")

    def __init__(self, inner: AbstractResolver, allowed: AddressRule = public) -> None:
        self._inner = inner
        self._allowed = allowed

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_UNSPEC,
    ) -> list[ResolveResult]:
        """Addresses of `host`. Raises AddressRefusedError."""
        answers = await self._inner.resolve(host, port, family)
        for answer in answers:
            address = ipaddress.ip_address(answer["host"].partition("%")[0])
            if not self._allowed(address):
                raise AddressRefusedError(f"{host} resolves to an address that is not allowed")
        return answers

    async def close(self) -> None:
        """Close the wrapped resolver."""
        await self._inner.close()


class SystemResolver(AbstractResolver):
    """The system's own look-up, in threads of its own.

    A look-up cannot be ended from outside, and clients choose the names: in the threads that everybody shares, a few
    names whose servers do not answer would hold up the connections to engines.
    """

    __slots__ = ("_threads",)

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_THREADS, "media names")

    async def resolve(
        self,
        host: str,
        port: int = 0,
        family: socket.AddressFamily = socket.AF_INET,
    ) -> list[ResolveResult]:
        """Addresses of `host`. Raises OSError, or ValueError for what can be no name."""
        ask = partial(socket.getaddrinfo, host, port, family, socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
        found = await asyncio.get_running_loop().run_in_executor(self._threads, ask)
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        """Take no more names. Look-ups that hang are left to themselves."""
        self._threads.shutdown(wait=False, cancel_futures=True)
