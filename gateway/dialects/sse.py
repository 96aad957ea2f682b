"""Server-sent events as bytes: an incremental reader that takes any split, and two writers."""

from __future__ import annotations

DONE = b"data: [DONE]\n\n"
_BOM = b"\xef\xbb\xbf"


class Frames:
    """Cuts an engine's event stream into blocks (one event each, newlines normalised, terminator removed).

    Takes CRLF, CR and LF, a leading BOM, comments, several `data:` lines. Working on bytes keeps multi-byte
    characters whole: line ends are ASCII. An unterminated last block is never handed out.
    """

    __slots__ = ("_after_cr", "_fresh", "pending")

    def __init__(self) -> None:
        self.pending = b""  # the incomplete last block
        self._after_cr = False  # the last byte was CR: a following LF belongs to it
        self._fresh = True  # nothing was seen yet: a BOM may still come

    def feed(self, data: bytes) -> list[bytes]:
        """The blocks that `data` completes, in order; blank ones are left out."""
        if data.find(b"\n\n") == len(data) - 2 and data.startswith(b"data: ") and not (self.pending or b"\r" in data):
            self._fresh = self._after_cr = False
            return [data[:-2]]
        if self._after_cr or b"\r" in data:
            data = self._normalise(data)
        if self.pending:
            data = self.pending + data
        if self._fresh:
            if len(data) < len(_BOM) and _BOM.startswith(data):
                self.pending = data
                return []
            self._fresh = False
            data = data.removeprefix(_BOM)
        *blocks, self.pending = data.split(b"\n\n")
        return [block for block in blocks if block]

    def _normalise(self, data: bytes) -> bytes:
        if self._after_cr and data:
            data = data.removeprefix(b"\n")
            self._after_cr = False
        if data.endswith(b"\r"):
            self._after_cr = True
        return data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def payload(block: bytes) -> bytes:
    """The joined `data:` lines of one block; b"" for comments and other fields."""
    if block.startswith(b"data: ") and b"\n" not in block:
        return block[6:]
    lines = [line[5:].removeprefix(b" ") for line in block.split(b"\n") if line.startswith(b"data:")]
    return b"\n".join(lines)


def frame(data: bytes) -> bytes:
    """An unnamed event with `data` (one line)."""
    return b"data: %b\n\n" % data


def named(event: bytes, data: bytes) -> bytes:
    """A named event with `data` (one line)."""
    return b"event: %b\ndata: %b\n\n" % (event, data)
