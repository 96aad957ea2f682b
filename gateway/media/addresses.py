"""Which URLs and addresses media may come from. Pure: no name is resolved here."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterable
from urllib.parse import SplitResult, urlsplit

from yarl import URL

from gateway.config.contracts import Media

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
AddressRule = Callable[[Address], bool]

# A host whose last label is a number is an IPv4 address to every resolver, in one of several spellings.
_NUMBER_LAST = re.compile(r"(?:^|\.)(?:\d+|0[xX][0-9a-fA-F]*)\.?$")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_URL_LIMIT = 8192


class MediaError(Exception):
    """A medium that is refused or could not be had; the text is fit for a client."""


def public(address: Address) -> bool:
    """Whether an address is on the public internet, seen through every way to wrap an IPv4 address into an IPv6 one."""
    return all(
        inner.is_global and not inner.is_multicast and not inner.is_reserved and not inner.is_unspecified
        for inner in (address, *_wrapped(address))
    )


def _wrapped(address: Address) -> Iterable[ipaddress.IPv4Address]:
    if isinstance(address, ipaddress.IPv4Address):
        return ()
    inside = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _NAT64 or address.packed[:12] == bytes(12):  # the latter: IPv4-compatible, long deprecated
        inside.append(ipaddress.IPv4Address(address.packed[12:]))
    return [inner for inner in inside if inner is not None]


def check_url(url: str, policy: Media, allowed: AddressRule = public) -> SplitResult:
    """The parts of a URL that may be fetched. Raises MediaError; what its name resolves to is checked later."""
    if len(url) > _URL_LIMIT or _FORBIDDEN.search(url):
        raise MediaError("is not a valid URL")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
        reached = URL(url).raw_host  # where a client connects: other scripts can spell an address, like 127.0.0.①
    except ValueError as error:
        raise MediaError("is not a valid URL") from error
    if parts.scheme not in policy.schemes:
        raise MediaError(f"has a scheme that is not allowed: {parts.scheme or 'none'}")
    if not host or not reached or port == 0:
        raise MediaError("is not a valid URL")
    if "@" in parts.netloc:
        raise MediaError("carries user information")
    if not _listed(host, policy.hosts):
        raise MediaError("is on a host that is not allowed")
    literal = _literal(reached)
    if literal is not None and not allowed(literal):
        raise MediaError("is at an address that is not allowed")
    return parts


def _literal(host: str) -> Address | None:
    try:
        return ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        if ":" in host or _NUMBER_LAST.search(host):
            raise MediaError("names its host by a number") from None
        return None


def _listed(host: str, patterns: Iterable[str]) -> bool:
    name = host.rstrip(".").lower()
    for pattern in patterns:
        if pattern == "*" or name == pattern.lower():
            return True
        if pattern.startswith("*.") and name.endswith(pattern[1:].lower()):
            return True
    return False
