"""Compressed and oversized bodies."""

import gzip
from unittest import mock

import pytest
import zstandard
from aiohttp import web
from aiohttp.streams import StreamReader
from aiohttp.test_utils import make_mocked_request

from gateway.bodies import read_body
from gateway.config.model import Listen
from gateway.errors import Cause, GatewayError

TEXT = b'{"model":"glm","messages":[{"role":"user","content":"hello"}]}'
LIMITS = Listen(body_limit_bytes=200_000, decompress_ratio_limit=20, request_timeout_s=0.05)


async def request(body: bytes, coding: str = "", *, declared: int | None = None, whole: bool = True) -> web.BaseRequest:
    reader = StreamReader(mock.Mock(_reading_paused=False), limit=2**20)
    reader.feed_data(body)
    if whole:
        reader.feed_eof()
    headers = {"Content-Encoding": coding} if coding else {}
    if declared is not None:
        headers["Content-Length"] = str(declared)
    return make_mocked_request("POST", "/", headers=headers, payload=reader, client_max_size=LIMITS.body_limit_bytes)


@pytest.mark.parametrize(
    ("coding", "body"),
    [("", TEXT), ("identity", TEXT), ("gzip", gzip.compress(TEXT)), ("ZSTD", zstandard.compress(TEXT))],
)
async def test_body_is_read(coding: str, body: bytes) -> None:
    assert await read_body(await request(body, coding), LIMITS) == TEXT


@pytest.mark.parametrize(
    ("coding", "body", "cause", "words"),
    [
        ("br", TEXT, Cause.MEDIA_TYPE, "not supported"),
        ("gzip", TEXT, Cause.BAD_REQUEST, "not valid gzip"),
        ("zstd", TEXT, Cause.BAD_REQUEST, "not valid zstd"),
        ("gzip", gzip.compress(TEXT)[:-9], Cause.BAD_REQUEST, "cut short"),
        ("gzip", gzip.compress(b"a" * 150_000), Cause.MEDIA_TYPE, "expands more than 20 times"),
        ("zstd", zstandard.compress(b"a" * 150_000), Cause.MEDIA_TYPE, "expands more than 20 times"),
        ("", b"a" * 200_001, Cause.TOO_LARGE, "200000 bytes"),
    ],
)
async def test_what_cannot_be_read_is_refused(coding: str, body: bytes, cause: Cause, words: str) -> None:
    with pytest.raises(GatewayError) as caught:
        await read_body(await request(body, coding), LIMITS)
    assert caught.value.cause is cause
    assert words in caught.value.message


async def test_a_body_declared_too_large_is_not_even_read() -> None:
    with pytest.raises(GatewayError) as caught:
        await read_body(await request(b"", declared=200_001, whole=False), LIMITS)
    assert caught.value.cause is Cause.TOO_LARGE


async def test_a_body_that_never_arrives_is_given_up() -> None:
    with pytest.raises(GatewayError) as caught:
        await read_body(await request(b"{", declared=100, whole=False), LIMITS)
    assert caught.value.cause is Cause.REQUEST_TIMEOUT
