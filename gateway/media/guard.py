"""The media guard: every URL in a request's content is checked at the edge, before any engine sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, TypeVar

import aiohttp
import msgspec

from backends.capabilities import IMAGE
from backends.contracts import DialectName
from gateway.config.contracts import Media
from gateway.errors import Cause, GatewayError
from gateway.media.addresses import AddressRule, MediaError, check_url, public
from gateway.media.fetch import Fetcher
from gateway.media.resolver import CheckedResolver, SystemResolver
from gateway.media.types import MediaKind
from policies.fields import field_of

# Chat content part type -> (kind, key of the part's object, key of the URL inside).
_PARTS: Final[Mapping[str, tuple[MediaKind, str, str]]] = {
    "image_url": ("image", "image_url", "url"),
    "video_url": ("video", "video_url", "url"),
    "audio_url": ("audio", "audio_url", "url"),
    "file": ("file", "file", "file_data"),
}
_CONCURRENT: Final = 8  # fetches, or look-ups, of one exchange at a time

Done = TypeVar("Done")


@dataclass(frozen=True, slots=True)
class MediaItem:
    """One URL of a request: where it is written and how the client knows the place."""

    kind: MediaKind
    holder: MutableMapping[str, Any]
    key: str
    param: str

    @property
    def url(self) -> str:
        """The URL as it stands."""
        return str(self.holder[self.key])


def media_items(messages: Sequence[Mapping[str, Any]]) -> Iterator[MediaItem]:
    """All media URLs in decoded Chat messages, in order; data URLs included."""
    for place, message in enumerate(messages):
        content = message.get("content")
        if not isinstance(content, list):
            continue
        for number, part in enumerate(content):
            item = _item(part, f"messages[{place}].content[{number}]") if isinstance(part, dict) else None
            if item is not None:
                yield item


def _item(part: MutableMapping[str, Any], place: str) -> MediaItem | None:
    shape = _PARTS.get(str(part.get("type")))
    if shape is None:
        return None
    kind, outer, inner = shape
    held = part.get(outer)
    if isinstance(held, str):  # some clients write the URL itself
        return MediaItem(kind, part, outer, f"{place}.{outer}")
    if not isinstance(held, dict):
        return None
    for key in (inner, "file_url"):
        if isinstance(held.get(key), str):
            return MediaItem(kind, held, key, f"{place}.{outer}.{key}")
    return None


class _Total:
    """Bytes of all media of one exchange, counted while they arrive."""

    __slots__ = ("_left", "_limit")

    def __init__(self, limit_bytes: int) -> None:
        self._left = self._limit = limit_bytes

    def add(self, count: int) -> None:
        """Raises MediaError when the limit is passed."""
        self._left -= count
        if self._left < 0:
            raise MediaError(f"makes all media together larger than {self._limit} bytes")


class MediaGuard:
    """Applies a pool's media policy. One per gateway; it holds the connector of all fetches."""

    __slots__ = ("_allowed", "_fetcher", "_resolver", "_session")

    def __init__(
        self, session: aiohttp.ClientSession, resolver: CheckedResolver, allowed: AddressRule = public
    ) -> None:
        self._session = session
        self._resolver = resolver
        self._allowed = allowed
        self._fetcher = Fetcher(session, allowed)

    async def close(self) -> None:
        """Close all connections."""
        await self._session.close()
        await self._resolver.close()

    async def admit_body(self, body: bytes, policy: Media, dialect: DialectName = "chat") -> bytes:
        """`admit` for all media of an engine's Chat body; the same object when nothing was replaced.

        Places in that body are places in the client's only where the client speaks Chat itself: errors in another
        `dialect` name its field that holds the media.
        """
        chat = msgspec.json.decode(body)
        items = tuple(media_items(chat.get("messages", ())))
        try:
            replaced = await self.admit(items, policy) if items else 0
        except GatewayError as error:
            raise error if dialect == "chat" else _in_words_of(dialect, error) from error
        return msgspec.json.encode(chat) if replaced else body

    async def admit(self, items: Sequence[MediaItem], policy: Media) -> int:
        """Check every item and, by policy, replace its URL by a data URL; returns how many were replaced.

        Raises GatewayError (400) that names the item; then no item has been changed.
        """
        if len(items) > policy.items:
            raise GatewayError(Cause.BAD_REQUEST, f"more than {policy.items} media items", param=items[-1].param)
        total = _Total(policy.total_limit_bytes)
        remote = []
        for item in items:
            if item.url[:5].lower() == "data:":
                _check_inline(item, policy, total)
            else:
                remote.append(item)
        if policy.policy == "fetch_and_inline":
            urls = await _all(remote, partial(self._fetch, policy=policy, total=total))
            for item, url in zip(remote, urls, strict=True):
                item.holder[item.key] = url
            return len(remote)
        await _all(remote, partial(self._check, policy=policy))
        return 0

    async def _fetch(self, item: MediaItem, policy: Media, total: _Total) -> str:
        try:
            return await self._fetcher.data_url(item.url, item.kind, policy, total.add)
        except MediaError as error:
            raise _refused(item, error) from error

    async def _check(self, item: MediaItem, policy: Media) -> None:
        """What can be checked without fetching. The engine resolves again, so `forward` trusts it not to be fooled."""
        try:
            if policy.policy == "refuse":
                raise MediaError("is a URL, and this pool takes data URLs only")
            parts = check_url(item.url, policy, self._allowed)
            try:
                async with asyncio.timeout(policy.timeout_s):
                    await self._resolver.resolve(parts.hostname or "", parts.port or 443)
            except TimeoutError as error:
                raise MediaError(f"is at a name that took longer than {policy.timeout_s:g} s to look up") from error
            except (OSError, ValueError) as error:  # the latter for what can be no name at all
                raise MediaError("is at an address that is not allowed or not known") from error
        except MediaError as error:
            raise _refused(item, error) from error


async def _all(items: Sequence[MediaItem], work: Callable[[MediaItem], Awaitable[Done]]) -> list[Done]:
    """`work` for every item, so many at a time. All or nothing: the first failure ends the others."""
    room = asyncio.Semaphore(_CONCURRENT)

    async def one(item: MediaItem) -> Done:
        async with room:
            return await work(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except ExceptionGroup as failures:
        raise failures.exceptions[0] from failures
    return [task.result() for task in tasks]


def _check_inline(item: MediaItem, policy: Media, total: _Total) -> None:
    size = len(item.url) * 3 // 4
    try:
        if size > policy.item_limit_bytes:
            raise MediaError(f"is larger than {policy.item_limit_bytes} bytes")
        total.add(size)
    except MediaError as error:
        raise _refused(item, error) from error


def _in_words_of(dialect: DialectName, error: GatewayError) -> GatewayError:
    """The error as clients of another dialect than Chat know the place; Messages has no field for it."""
    field = field_of(IMAGE, dialect)
    message = f"{field}: {error.message}" if dialect == "messages" else error.message
    return GatewayError(error.cause, message, param=field, code=error.code)


def _refused(item: MediaItem, error: MediaError) -> GatewayError:
    return GatewayError(Cause.BAD_REQUEST, f"the {item.kind} {error}", param=item.param, code="invalid_media_url")


def build(allowed: AddressRule = public, resolver: aiohttp.abc.AbstractResolver | None = None) -> MediaGuard:
    """A guard with its own connector. Needs a running event loop; `close` it at the end."""
    checked = CheckedResolver(resolver or SystemResolver(), allowed)
    # No DNS cache and no kept connections: every request goes to an address that was checked for it.
    connector = aiohttp.TCPConnector(
        resolver=checked, use_dns_cache=False, force_close=True, limit=64, limit_per_host=8
    )
    session = aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
    )
    return MediaGuard(session, checked, allowed)
