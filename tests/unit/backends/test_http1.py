"""Engine responses parse the same however the bytes are cut."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.http1 import ChunkedBody, ProtocolError, RepeatedHead, SizedBody, body_of, parse_head


def chunks_of(*payloads: bytes) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in payloads) + b"0\r\n\r\n"


def test_head_is_parsed_with_lower_case_names() -> None:
    head = parse_head(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nX-A:  b ")
    assert head.status == 200
    assert head.content_type == "text/event-stream"
    assert head.get(b"x-a") == b"b"
    assert head.keep_alive


@pytest.mark.parametrize(
    ("block", "keeps"),
    [
        (b"HTTP/1.1 200 OK", True),
        (b"HTTP/1.1 200 OK\r\nconnection: close", False),
        (b"HTTP/1.0 200 OK", False),
        (b"HTTP/1.0 200 OK\r\nconnection: Keep-Alive", True),
    ],
)
def test_keep_alive_follows_version_and_connection(block: bytes, keeps: bool) -> None:
    assert parse_head(block).keep_alive is keeps


@pytest.mark.parametrize(
    "block",
    [
        b"HTTP/2 200 OK",
        b"SSH-2.0-OpenSSH",
        b"HTTP/1.1 2xx OK",
        b"HTTP/1.1 200 OK\r\nno colon",
        b"HTTP/1.1 200 OK\r\nname : value",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2",
    ],
)
def test_what_is_no_head_is_refused(block: bytes) -> None:
    with pytest.raises(ProtocolError):
        parse_head(block)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=8), st.lists(st.integers(1, 30), min_size=1, max_size=40))
def test_chunked_body_is_the_same_under_any_split(payloads: list[bytes], cuts: list[int]) -> None:
    wire, got, body, at = chunks_of(*payloads) + b"NEXT", b"", ChunkedBody(), 0
    while not body.done:
        step = cuts.pop(0) if cuts else len(wire)
        got += body.feed(wire[at : at + step])
        at += step
    assert got == b"".join(payloads)
    assert body.rest + wire[at:] == b"NEXT"


def test_extensions_and_trailers_are_skipped() -> None:
    body = ChunkedBody()
    assert body.feed(b"3;a=b\r\nabc\r\n0\r\nx-trailer: 1\r\n\r\n") == b"abc"
    assert body.done
    assert body.rest == b""


BAD_CHUNKS = [b"0x3\r\nabc\r\n", b"-1\r\n", b"\r\n", b"3\r\nabcd\r\n", b"f" * 20 + b"\r\n", b"1" * 2000]


@pytest.mark.parametrize("wire", BAD_CHUNKS)
def test_malformed_chunks_are_refused(wire: bytes) -> None:
    with pytest.raises(ProtocolError):
        ChunkedBody().feed(wire)


def test_sized_body_ends_at_its_length() -> None:
    body = SizedBody(3)
    assert body.feed(b"ab") == b"ab"
    assert not body.done
    assert body.feed(b"cde") == b"c"
    assert body.done
    assert body.rest == b"de"


@pytest.mark.parametrize(
    ("block", "head_request", "done", "by_close"),
    [
        (b"HTTP/1.1 204 No Content", False, True, False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5", True, True, False),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 5", False, False, False),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked", False, False, False),
        (b"HTTP/1.1 200 OK", False, False, True),
    ],
)
def test_framing_follows_the_head(block: bytes, head_request: bool, done: bool, by_close: bool) -> None:
    body, ends_by_close = body_of(parse_head(block), head_request=head_request)
    assert (body.done, ends_by_close) == (done, by_close)


def test_two_framings_cost_the_connection() -> None:
    head = parse_head(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ncontent-length: 5")
    body_of(head)
    assert not head.keep_alive


@pytest.mark.parametrize("line", [b"transfer-encoding: gzip, chunked", b"content-length: five", b"content-length: -1"])
def test_unknown_framing_is_refused(line: bytes) -> None:
    with pytest.raises(ProtocolError):
        body_of(parse_head(b"HTTP/1.1 200 OK\r\n" + line))


KNOWN = b"POST /a HTTP/1.1\r\nhost: b\r\nContent-Length:  5\r\nx: 5\r\n\r\n"


@pytest.mark.parametrize(
    ("data", "body"),
    [
        (KNOWN + b"12345", b"12345"),
        (KNOWN.replace(b"  5", b"  12") + b"twelve bytes", b"twelve bytes"),
        (KNOWN.replace(b"  5", b"  0"), b""),
        (KNOWN + b"1234", None),  # not all of it
        (KNOWN + b"123456", None),  # and something more
        (KNOWN[:-1], None),
        (KNOWN.replace(b"  5", b"  +5") + b"12345", None),
        (KNOWN.replace(b"  5", b"  ") + b"12345", None),
        (KNOWN.replace(b"  5", b"  5\r\nhost: c") + b"12345", None),
        (KNOWN.replace(b"host: b", b"host: c") + b"12345", None),
        (KNOWN.replace(b"x: 5", b"x: 6") + b"12345", None),
        (KNOWN.replace(b"  5", b"  " + b"0" * 40 + b"5") + b"12345", None),
        (b"", None),
    ],
)
def test_a_head_is_known_again_whatever_its_length(data: bytes, body: bytes | None) -> None:
    at = RepeatedHead(KNOWN).body_at(data)
    assert (data[at:] if at else None) == body
