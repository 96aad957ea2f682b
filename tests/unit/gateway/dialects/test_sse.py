from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.dialects.sse import Frames, payload

BLOCKS = [b'data: {"a":1}', b"data: one\ndata:two", b": ping", "data: 北京 🙂".encode(), b"event: x\ndata: y"]
PAYLOADS = [payload(block) for block in BLOCKS]


def read(data: bytes, cuts: list[int]) -> tuple[list[bytes], bytes]:
    frames = Frames()
    edges = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    out = [block for a, b in pairwise(edges) for block in frames.feed(data[a:b])]
    return [payload(block) for block in out], frames.pending


@given(cuts=st.lists(st.integers(0, 500)), newline=st.sampled_from([b"\n", b"\r\n", b"\r"]), bom=st.booleans())
def test_any_split_and_any_line_end_gives_the_same(cuts, newline, bom):
    data = b"".join(block + b"\n\n" for block in BLOCKS).replace(b"\n", newline)
    got, pending = read((b"\xef\xbb\xbf" if bom else b"") + data, cuts)
    assert (got, pending) == (PAYLOADS, b"")


@given(cuts=st.lists(st.integers(0, 500)))
def test_an_unterminated_last_block_is_kept_back(cuts):
    got, pending = read(b"data: a\n\ndata: b\n", cuts)
    assert got == [b"a"]
    assert pending == b"data: b\n"


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        (b"data:x", b"x"),
        (b"data:  x", b" x"),
        (b"data: a\ndata: b", b"a\nb"),
        (b": c", b""),
        (b"id: 1", b""),
        (b"data:", b""),
    ],
)
def test_payload(block, expected):
    assert payload(block) == expected


def test_a_cr_at_the_end_of_a_chunk_belongs_to_the_lf_that_follows():
    frames = Frames()
    assert frames.feed(b"data: a\r\n\r") == [b"data: a"]
    assert frames.feed(b"\ndata: b\r\n\r\n") == [b"data: b"]
    assert frames.pending == b""
