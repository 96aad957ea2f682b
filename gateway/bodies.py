"""Reading a request body: size cap, compressed forms with a ratio cap, and a time limit for slow senders."""

from __future__ import annotations

import asyncio
import zlib

import zstandard
from aiohttp import hdrs, web

from gateway.config.model import Listen
from gateway.errors import Cause, GatewayError

_PIECE = 64 * 1024


def ready_body(request: web.BaseRequest, limits: Listen) -> bytes | None:
    """The body when all of it came with the head and it is not compressed, else None. Raises GatewayError (413)."""
    content = request.content
    if not content.is_eof() or hdrs.CONTENT_ENCODING in request.headers:
        return None
    raw = content.read_nowait()
    if len(raw) > limits.body_limit_bytes:
        raise _too_large(limits)
    return raw


async def read_body(request: web.BaseRequest, limits: Listen) -> bytes:
    """The whole body, decompressed. Raises GatewayError (413, 415, 400 or 408)."""
    declared = request.content_length
    if declared is not None and declared > limits.body_limit_bytes:
        raise _too_large(limits)
    raw = await _awaited(request, limits)
    coding = request.headers.get(hdrs.CONTENT_ENCODING)
    return _decompressed(raw, coding.strip().lower(), limits) if coding else raw


async def _awaited(request: web.BaseRequest, limits: Listen) -> bytes:
    try:
        async with asyncio.timeout(limits.request_timeout_s):
            return await request.read()
    except web.HTTPRequestEntityTooLarge:
        raise _too_large(limits) from None
    except TimeoutError:
        raise GatewayError(
            Cause.REQUEST_TIMEOUT, f"the request body did not arrive within {limits.request_timeout_s:g} s"
        ) from None


def _decompressed(raw: bytes, coding: str, limits: Listen) -> bytes:
    cap = min(limits.body_limit_bytes, max(_PIECE, len(raw) * limits.decompress_ratio_limit))
    try:
        if coding in ("gzip", "x-gzip"):
            body, whole = _gunzip(raw, cap)
        elif coding == "zstd":
            body, whole = _unzstd(raw, cap)
        elif coding == "identity":
            return raw
        else:
            raise GatewayError(Cause.MEDIA_TYPE, f"content-encoding {coding[:40]!r} is not supported: gzip, zstd")
    except (zlib.error, zstandard.ZstdError):
        raise GatewayError(Cause.BAD_REQUEST, f"the body is not valid {coding}") from None
    if len(body) > cap:
        if cap == limits.body_limit_bytes:
            raise _too_large(limits)
        raise GatewayError(Cause.MEDIA_TYPE, f"the body expands more than {limits.decompress_ratio_limit} times")
    if not whole:
        raise GatewayError(Cause.BAD_REQUEST, f"the {coding} body is cut short")
    return body


def _gunzip(raw: bytes, cap: int) -> tuple[bytes, bool]:
    decoder = zlib.decompressobj(zlib.MAX_WBITS | 16)
    body = decoder.decompress(raw, cap + 1)
    return body, decoder.eof


def _unzstd(raw: bytes, cap: int) -> tuple[bytes, bool]:
    reader = zstandard.ZstdDecompressor(max_window_size=8 * 1024 * 1024).stream_reader(raw)
    pieces: list[bytes] = []
    size = 0
    while size <= cap and (piece := reader.read(_PIECE)):
        pieces.append(piece)
        size += len(piece)
    # A reader that stops early gives no sign of it; a frame states its size when the sender knew it.
    stated = zstandard.frame_content_size(raw)
    return b"".join(pieces), stated < 0 or size >= stated


def _too_large(limits: Listen) -> GatewayError:
    return GatewayError(Cause.TOO_LARGE, f"the request body is larger than {limits.body_limit_bytes} bytes")
