"""The few requests that probing makes, over any HTTP client."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, Protocol

import aiohttp

_BODY_LIMIT = 8 * 1024 * 1024


class Answer(NamedTuple):
    """What came back. Status 0: no answer (refused, broken, timed out), with the reason as the body."""

    status: int
    headers: Mapping[str, str]  # names in lower case
    body: bytes


class ProbeClient(Protocol):
    """Requests to one replica. Implementations never raise for network trouble: they answer with status 0."""

    async def get(self, path: str) -> Answer:
        """GET `path` (which may carry a query)."""
        ...

    async def post(self, path: str, json: Mapping[str, Any]) -> Answer:
        """POST a JSON body; a streamed answer is read to its end."""
        ...


class AiohttpProbe:
    """A `ProbeClient` on an aiohttp session that the caller owns."""

    __slots__ = ("_headers", "_session", "_timeout", "_url")

    def __init__(
        self,
        session: aiohttp.ClientSession,
        url: str,
        *,
        api_key: str | None = None,
        timeout_s: float = 120.0,
    ) -> None:
        self._session = session
        self._url = url.rstrip("/")
        self._timeout = aiohttp.ClientTimeout(total=timeout_s)
        self._headers = {"user-agent": "headrace-probe"}
        if api_key:
            self._headers["authorization"] = f"Bearer {api_key}"

    async def get(self, path: str) -> Answer:
        """GET `path`."""
        return await self._request("GET", path, None)

    async def post(self, path: str, json: Mapping[str, Any]) -> Answer:
        """POST a JSON body."""
        return await self._request("POST", path, json)

    async def _request(self, method: str, path: str, json: Mapping[str, Any] | None) -> Answer:
        try:
            async with self._session.request(
                method,
                self._url + path,
                json=json,
                headers=self._headers,
                timeout=self._timeout,
                allow_redirects=False,
            ) as response:
                body = await read_body(response)
                return Answer(response.status, {key.lower(): value for key, value in response.headers.items()}, body)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            return Answer(0, {}, type(error).__name__.encode())


async def read_body(response: aiohttp.ClientResponse) -> bytes:
    """A body, in however many pieces it comes; cut when it is larger than anything that is looked at."""
    body = bytearray()
    async for chunk in response.content.iter_chunked(65536):
        body += chunk
        if len(body) > _BODY_LIMIT:
            break
    return bytes(body)
