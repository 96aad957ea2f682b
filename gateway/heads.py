"""The head of an everyday request, read strictly: whatever is not certain is left to a full parser."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from multidict import CIMultiDict

_LIMIT = 8190  # bytes of a head
_LINES = 64
_FIRST = re.compile(rb"([A-Z]+) (/[A-Za-z0-9/_.~-]*) HTTP/1\.1")
_FIELD = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*((?:[!-~](?:[ -~]*[!-~])?)?)[ \t]*")
# With one of these a body is framed, coded or announced in a way that needs care.
_SPECIAL = frozenset({"transfer-encoding", "content-encoding", "expect", "upgrade", "trailer", "te"})
_LENGTH = re.compile(r"[0-9]{1,12}")
_END = b"\r\n\r\n"


class Head(NamedTuple):
    """A request's head: `block` is its bytes up to and with the empty line, `length` that of the body in bytes."""

    method: str
    path: str
    headers: Mapping[str, str]
    length: int
    block: bytes


def read_head(data: bytes) -> Head | None:
    """The head that `data` begins with, when all of it is there and nothing in it can be read in two ways.

    Every name is given once, values are printable ASCII, the path needs no decoding and has no query, and the body is
    framed by its length alone, which that of CONNECT is not to everybody.
    """
    stop = data.find(_END, 0, _LIMIT)
    if stop < 0:
        return None
    first, *lines = data[:stop].split(b"\r\n", _LINES)
    asked = _FIRST.fullmatch(first)
    headers: CIMultiDict[str] = CIMultiDict()
    for line in lines:
        field = _FIELD.fullmatch(line)
        if field is None:
            return None
        headers.add(field[1].decode(), field[2].decode())
    names = {name.lower() for name in headers}
    if asked is None or asked[1] == b"CONNECT" or len(names) != len(lines):
        return None
    if "host" not in names or not names.isdisjoint(_SPECIAL):
        return None
    length = headers.get("content-length", "0")
    if headers.get("connection", "keep-alive").lower() != "keep-alive" or _LENGTH.fullmatch(length) is None:
        return None
    return Head(asked[1].decode(), asked[2].decode(), headers, int(length), data[: stop + len(_END)])
