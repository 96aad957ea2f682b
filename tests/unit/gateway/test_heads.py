"""Heads read strictly: what `read_head` accepts, aiohttp's parser reads alike."""

import asyncio

import pytest
from aiohttp.base_protocol import BaseProtocol
from aiohttp.http_parser import HttpRequestParser
from hypothesis import given
from hypothesis import strategies as st

from gateway.heads import read_head

FIRST = b"POST /v1/chat/completions HTTP/1.1"
HOST = b"host: a"
LENGTH = b"content-length: 5"


def block(*lines: bytes) -> bytes:
    return b"\r\n".join((*lines, b"", b""))


def test_an_everyday_head() -> None:
    data = block(FIRST, HOST, b"Authorization:  Bearer x ", b"x-empty:", LENGTH)
    head = read_head(data + b"hello")
    assert head is not None
    assert (head.method, head.path, head.length, head.block) == ("POST", "/v1/chat/completions", 5, data)
    assert head.headers["authorization"] == "Bearer x"
    assert head.headers["X-Empty"] == ""


def test_no_body() -> None:
    head = read_head(block(b"GET /v1/models/glm-5.3 HTTP/1.1", HOST, b"connection: Keep-Alive"))
    assert head is not None
    assert (head.method, head.length) == ("GET", 0)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        block(FIRST, HOST, LENGTH)[:-1],
        block(FIRST, LENGTH),
        block(b"CONNECT /v1/chat/completions HTTP/1.1", HOST, LENGTH),
        block(FIRST, HOST, LENGTH, LENGTH),
        block(FIRST, HOST, LENGTH, b"Content-Length: 6"),
        block(FIRST, HOST, b"content-length: +5"),
        block(FIRST, HOST, b"content-length: 5, 5"),
        block(FIRST, HOST, b"content-length: 0x5"),
        block(FIRST, HOST, b"content-length:"),
        block(FIRST, HOST, b"content-length: " + b"9" * 13),
        block(FIRST, HOST, LENGTH, b"transfer-encoding: chunked"),
        block(FIRST, HOST, LENGTH, b"Transfer-Encoding: identity"),
        block(FIRST, HOST, LENGTH, b"expect: 100-continue"),
        block(FIRST, HOST, LENGTH, b"content-encoding: gzip"),
        block(FIRST, HOST, LENGTH, b"upgrade: websocket"),
        block(FIRST, HOST, LENGTH, b"connection: close"),
        block(FIRST, HOST, LENGTH, b"connection: keep-alive, upgrade"),
        block(FIRST, HOST, LENGTH, b"x-api-key: a", b"X-Api-Key: b"),
        block(FIRST, HOST, LENGTH, b"name : value"),
        block(FIRST, HOST, LENGTH, b" folded: value"),
        block(FIRST, HOST, LENGTH, b"x: a\rb"),
        block(FIRST, HOST, LENGTH, b"x: a\nb: c"),
        block(FIRST, HOST, LENGTH, b"x: a\0"),
        block(FIRST, HOST, LENGTH, b"x: \xc3\xa9"),
        block(FIRST, HOST, LENGTH, b"no colon"),
        block(FIRST, HOST, LENGTH, b": no name"),
        block(FIRST[:-1] + b"0", HOST, LENGTH),
        block(b"POST  / HTTP/1.1", HOST, LENGTH),
        block(b"post / HTTP/1.1", HOST, LENGTH),
        block(b"POST /a?b HTTP/1.1", HOST, LENGTH),
        block(b"POST /%61 HTTP/1.1", HOST, LENGTH),
        block(b"POST http://a/ HTTP/1.1", HOST, LENGTH),
        block(b"\r\n" + FIRST, HOST, LENGTH),
        block(FIRST, HOST, LENGTH, *(b"x%d: a" % number for number in range(64))),
        block(FIRST, HOST, LENGTH, b"x: " + b"a" * 8190),
    ],
)
def test_what_is_left_to_a_full_parser(data: bytes) -> None:
    assert read_head(data) is None


LINES = st.sampled_from(
    [HOST, LENGTH, b"content-length: 0", b"Accept: */*", b"connection: keep-alive", b"x:\t a b \t", b"x-y: ;=,", b"y:"]
)
NOISE = st.binary(max_size=3) | st.sampled_from([b"\r\n", b"\n", b":", b" ", b"\t", b"\r\n\r\n", b"chunked"])


@given(lines=st.lists(LINES, max_size=6), noise=NOISE, where=st.integers(0, 200))
def test_aiohttp_reads_the_same(lines: list[bytes], noise: bytes, where: int) -> None:
    whole = block(FIRST, *lines)
    data = whole[:where] + noise + whole[where:]
    head = read_head(data)
    if head is None:
        return
    loop = asyncio.new_event_loop()
    try:
        parser = HttpRequestParser(BaseProtocol(loop), loop, 2**16)
        ((message, _), *more), upgraded, _ = parser.feed_data(head.block)
    finally:
        loop.close()
    assert (message.method, message.path) == (head.method, head.path)
    assert [(name.lower(), value) for name, value in message.headers.items()] == [
        (name.lower(), value) for name, value in head.headers.items()
    ]
    assert int(message.headers.get("content-length", "0")) == head.length
    assert not any((more, upgraded, message.chunked, message.should_close))
