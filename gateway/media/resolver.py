"""Names to addresses for fetches: only what is allowed comes out, and the connection goes to just that address.

The connector connects to the very answer that was checked here, so that a name cannot change its mind in between.
"""

from __future__ import annotations

import ipaddress
import socket

from aiohttp.abc import AbstractResolver, ResolveResult

from gateway.media.addresses import AddressRule, public


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
