"""HTTP/1.1 responses of engines, sans-IO: bytes in, head and payload out. Any split gives the same."""

from __future__ import annotations

from dataclasses import dataclass

HEAD_LIMIT = 64 * 1024
CHUNK_LINE_LIMIT = 1024
_LENGTH_DIGITS = 12
_HEX = b"0123456789abcdefABCDEF"
_DIGITS = [int(chr(byte), 16) if byte in _HEX else -1 for byte in range(256)]
_SIZE_DIGITS = 5  # of a chunk that is one event
_NO_BODY = frozenset((204, 304))


class ProtocolError(Exception):
    """The peer does not speak HTTP/1.1."""


@dataclass(slots=True)
class ResponseHead:
    """Status line and headers. Names are lower case; of a repeated header the last value is kept."""

    status: int
    headers: dict[bytes, bytes]
    keep_alive: bool

    def get(self, name: bytes, default: bytes = b"") -> bytes:
        """A header by its lower-case name."""
        return self.headers.get(name, default)

    @property
    def content_type(self) -> str:
        """Media type without parameters, lower case."""
        return self.headers.get(b"content-type", b"").partition(b";")[0].strip().lower().decode("latin-1")


def parse_head(block: bytes) -> ResponseHead:
    """Parse a status line and headers, without the empty line after them."""
    lines = block.split(b"\r\n")
    first = lines[0]
    if not first.startswith(b"HTTP/1.") or not first[9:12].isdigit():
        raise ProtocolError("no HTTP/1.x status line")
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        if not colon or not name or name[-1:].isspace():
            raise ProtocolError("malformed header line")
        key, text = name.lower(), value.strip()
        if key == b"content-length" and headers.get(key, text) != text:
            raise ProtocolError("two different content lengths")
        headers[key] = text
    wish = headers.get(b"connection", b"").lower()
    keep = b"close" not in wish if first[7:8] == b"1" else b"keep-alive" in wish
    return ResponseHead(int(first[9:12]), headers, keep)


class RepeatedHead:
    """A head that was read before, known again by its bytes. Only the number in its content-length may be another.

    Whoever sends over a kept connection repeats its head; then nothing in it has to be read again.
    """

    __slots__ = ("_after", "_before", "_digits_at")

    def __init__(self, head: bytes) -> None:
        """`head` is a well-formed one with one content-length, up to and with the empty line."""
        stop = head.index(b"\r\n", head.lower().index(b"\r\ncontent-length:") + 2)
        digits = head[:stop].rpartition(b":")[2].strip()
        self._digits_at = head.rindex(digits, 0, stop)
        self._before = head[: self._digits_at]
        self._after = head[self._digits_at + len(digits) :]

    def body_at(self, data: bytes) -> int:
        """Where the body begins when `data` is this head and a whole body, and nothing else; 0 for anything else."""
        at, missing = self.body_in(data)
        return at if not missing else 0

    def body_in(self, data: bytes) -> tuple[int, int]:
        """Where the body begins and how many bytes of it are missing; (0, 0) when `data` is not this head.

        Nor is it when something follows the body.
        """
        start = at = self._digits_at
        if data[:start] != self._before:
            return 0, 0
        length = 0
        # Bytes are compared and digits read one by one: compiled, that costs a third of calling methods for it.
        while at < len(data) and 48 <= data[at] <= 57 and at < start + _LENGTH_DIGITS:
            length = 10 * length + data[at] - 48
            at += 1
        begin = at + len(self._after)
        if at == start or data[at:begin] != self._after:
            return 0, 0
        missing = length - len(data) + begin
        return (begin, missing) if missing >= 0 else (0, 0)


class ChunkedBody:
    """Decoder of the chunked transfer coding. `feed` returns payload; `rest` is what follows the body."""

    __slots__ = ("_held", "_left", "_trailers", "done", "rest")

    def __init__(self) -> None:
        self._held = b""  # an incomplete chunk line, or the CRLF after a chunk
        self._left = 0  # payload bytes of the current chunk still to come, then -1 for its CRLF
        self._trailers = False
        self.done = False
        self.rest = b""

    def whole(self, data: bytes) -> int:
        """Where the payload begins when `data` is exactly one chunk, as engines flush their events; else 0.

        The payload ends two bytes before `data` does. Asking changes nothing: such a chunk need not be fed.
        """
        if self._left or self._held or self._trailers:
            return 0
        at = size = 0
        while at < len(data) and at < _SIZE_DIGITS and (digit := _DIGITS[data[at]]) >= 0:
            size = 16 * size + digit
            at += 1
        if not size or len(data) != at + size + 4 or data[at : at + 2] != b"\r\n" or data[-2:] != b"\r\n":
            return 0
        return at + 2

    def feed(self, data: bytes) -> bytes:
        """Decode more bytes. Raises ProtocolError on a malformed chunk."""
        if self._held:
            data, self._held = self._held + data, b""
        parts: list[bytes] = []
        at, end = 0, len(data)
        while at < end and not self.done:
            if self._left > 0:
                piece = data[at : at + self._left]
                parts.append(piece)
                at += len(piece)
                self._left -= len(piece)
                if not self._left:
                    self._left = -1
            elif self._left < 0:
                at = self._chunk_end(data, at)
            else:
                at = self._line(data, at)
        if self.done:
            self.rest = data[at:]
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def _chunk_end(self, data: bytes, at: int) -> int:
        if len(data) - at < 2:
            self._held = data[at:]
            return len(data)
        if data[at : at + 2] != b"\r\n":
            raise ProtocolError("no CRLF after a chunk")
        self._left = 0
        return at + 2

    def _line(self, data: bytes, at: int) -> int:
        stop = data.find(b"\r\n", at)
        if stop < 0:
            if len(data) - at > CHUNK_LINE_LIMIT:
                raise ProtocolError("chunk line too long")
            self._held = data[at:]
            return len(data)
        line = data[at:stop]
        if self._trailers:
            self.done = not line
            return stop + 2
        self._left = _chunk_size(line.partition(b";")[0].strip())
        self._trailers = not self._left
        return stop + 2


def _chunk_size(digits: bytes) -> int:
    """`int` alone would also take signs, underscores and a prefix."""
    if not digits or len(digits) > 16 or digits.strip(_HEX):
        raise ProtocolError("malformed chunk size")
    return int(digits, 16)


class SizedBody:
    """A body of known length; `size` None means until the connection closes."""

    __slots__ = ("_left", "done", "rest")

    def __init__(self, size: int | None) -> None:
        self._left = size
        self.done = size == 0
        self.rest = b""

    def feed(self, data: bytes) -> bytes:
        """Return the part of `data` that belongs to the body."""
        if self._left is None:
            return data
        if len(data) > self._left:
            data, self.rest = data[: self._left], data[self._left :]
        self._left -= len(data)
        self.done = not self._left
        return data


def body_of(head: ResponseHead, *, head_request: bool = False) -> tuple[ChunkedBody | SizedBody, bool]:
    """The body decoder for a response, and whether its end is told by the close of the connection."""
    if head_request or head.status in _NO_BODY:
        return SizedBody(0), False
    coding = head.get(b"transfer-encoding").lower()
    if coding:
        if coding != b"chunked":
            raise ProtocolError("unknown transfer coding")
        if b"content-length" in head.headers:
            head.keep_alive = False  # two framings: believe the safer one and never reuse the connection
        return ChunkedBody(), False
    length = head.get(b"content-length")
    if length:
        if not length.isdigit():
            raise ProtocolError("malformed content length")
        return SizedBody(int(length)), False
    head.keep_alive = False
    return SizedBody(None), True
