"""One medium by HTTP, bounded in every direction, as a data URL."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable
from typing import Final
from urllib.parse import urljoin

import aiohttp

from gateway.config.contracts import Media
from gateway.media.addresses import AddressRule, MediaError, check_url, public
from gateway.media.resolver import AddressRefusedError
from gateway.media.types import MediaKind, media_type

_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_HEADERS: Final = {
    "user-agent": "headrace-media",
    "accept-encoding": "identity",  # nothing to unpack means no bomb
    "accept": "*/*",
}


class Fetcher:
    """Fetches over a session whose connector uses a `CheckedResolver` (see `gateway.media.build`)."""

    __slots__ = ("_allowed", "_session")

    def __init__(self, session: aiohttp.ClientSession, allowed: AddressRule = public) -> None:
        self._session = session
        self._allowed = allowed

    async def data_url(self, url: str, kind: MediaKind, policy: Media, count: Callable[[int], None]) -> str:
        """Fetch `url`, following checked redirects. Raises MediaError for anything but a medium of that kind.

        `count` hears of every piece as it arrives and may raise MediaError itself.
        """
        try:
            async with asyncio.timeout(policy.timeout_s):
                declared, body = await self._follow(url, policy, count)
        except TimeoutError as error:
            raise MediaError(f"took longer than {policy.timeout_s:g} s to fetch") from error
        except AddressRefusedError as error:
            raise MediaError("is at an address that is not allowed") from error
        except aiohttp.ClientConnectorError as error:
            if isinstance(error.os_error, AddressRefusedError):
                raise MediaError("is at an address that is not allowed") from error
            raise MediaError("could not be fetched") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise MediaError("could not be fetched") from error
        return f"data:{media_type(declared, body, kind)};base64,{base64.b64encode(body).decode()}"

    async def _follow(self, url: str, policy: Media, count: Callable[[int], None]) -> tuple[str, bytes]:
        for _ in range(policy.redirects + 1):
            check_url(url, policy, self._allowed)
            async with self._session.get(url, headers=_HEADERS, allow_redirects=False) as response:
                if response.status not in _REDIRECTS:
                    return await _body(response, policy.item_limit_bytes, count)
                location = response.headers.get("location")
            if not location:
                raise MediaError("redirects to nowhere")
            url = urljoin(url, location)
        raise MediaError(f"redirects more than {policy.redirects} times")


async def _body(response: aiohttp.ClientResponse, limit_bytes: int, count: Callable[[int], None]) -> tuple[str, bytes]:
    """Content type and body of a 200."""
    if response.status != 200:
        raise MediaError(f"answered with status {response.status}")
    if response.headers.get("content-encoding", "identity") != "identity":
        raise MediaError("is compressed in transfer")
    if (response.content_length or 0) > limit_bytes:
        raise MediaError(f"is larger than {limit_bytes} bytes")
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > limit_bytes:
            raise MediaError(f"is larger than {limit_bytes} bytes")
        count(len(chunk))
    return response.content_type, bytes(body)
