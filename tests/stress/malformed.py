"""Requests that no sane client sends, made from a seed."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

PATHS = ("/v1/chat/completions", "/v1/completions", "/v1/embeddings", "/v1/messages", "/v1/responses", "/tokenize")
FIELDS = (
    "model messages prompt input stream stream_options max_tokens temperature top_p n stop tools tool_choice logprobs "
    "top_logprobs response_format seed user metadata logit_bias reasoning_effort priority rid kv_transfer_params"
)
ODD: tuple[Any, ...] = (
    None, True, -1, 0, 1e308, 10**30, "", "x" * 5000, "\x00\ud7ff", [], {}, [[]], [None], [{}], {"a": {"b": []}},
    [1, "a"],
    {"type": "json_schema"}, {"type": "function", "function": None}, [{"type": "function"}], [{"role": "user"}],
    [{"role": 7, "content": []}], [{"role": "user", "content": [{"type": "image_url"}]}], {"include_usage": "yes"},
)  # fmt: skip


@dataclass(frozen=True)
class Case:
    """Bytes for one connection. An incomplete request may be met with silence."""

    name: str
    data: bytes
    incomplete: bool = False


def sane(rng: random.Random, path: str = PATHS[0]) -> dict[str, Any]:
    """A body that is all right."""
    text = f"{rng.random()} hello"
    if path == "/v1/chat/completions" or path == "/v1/messages":
        return {"model": "sim", "messages": [{"role": "user", "content": text}], "max_tokens": 2}
    return {"model": "sim", "prompt": text, "input": text, "max_tokens": 2}


def http(
    body: bytes, key: str, *extra: str, path: str = PATHS[0], method: str = "POST", length: int | None = None
) -> bytes:
    """A request with these lines in its head."""
    head = [
        f"{method} {path} HTTP/1.1",
        "host: fuzz",
        "content-type: application/json",
        f"authorization: Bearer {key}",
        f"content-length: {len(body) if length is None else length}",
        *extra,
    ]
    return "\r\n".join(head).encode("latin-1") + b"\r\n\r\n" + body


def odd_field(rng: random.Random, key: str) -> Case:
    """Fields of the wrong type, in and out of place."""
    path = rng.choice(PATHS)
    body = sane(rng, path)
    for name in rng.sample(FIELDS.split(), k=rng.randint(1, 4)):
        body[name] = rng.choice(ODD)
    return Case("odd field", http(json.dumps(body).encode("utf-8", "surrogatepass"), key, path=path))


def cut_json(rng: random.Random, key: str) -> Case:
    """A body that ends too early, with a right length."""
    whole = json.dumps(sane(rng)).encode()
    return Case("cut JSON", http(whole[: rng.randrange(len(whole))], key, path=rng.choice(PATHS)))


def flipped_bytes(rng: random.Random, key: str) -> Case:
    """Some bytes of a body replaced; invalid UTF-8 among them."""
    body = bytearray(json.dumps(sane(rng)).encode())
    for _ in range(rng.randint(1, 8)):
        body[rng.randrange(len(body))] = rng.randrange(256)
    return Case("flipped bytes", http(bytes(body), key, path=rng.choice(PATHS)))


def not_an_object(rng: random.Random, key: str) -> Case:
    """JSON, but no object; or deeper than any stack."""
    depth = rng.choice((100, 5_000, 200_000))
    odd = (b"[]", b'"text"', b"null", b"1e999", b"NaN", b"", b" ", b"[" * depth, b'{"a":' * depth, b"\xef\xbb\xbf{}")
    return Case("not an object", http(rng.choice(odd), key, path=rng.choice(PATHS)))


def odd_encoding(rng: random.Random, key: str) -> Case:
    """Compression that is broken, unknown or a bomb."""
    body = json.dumps(sane(rng)).encode()
    packed = gzip.compress(body)
    variants = (
        ("gzip", packed),
        ("gzip", packed[: len(packed) // 2]),
        ("gzip", body),
        ("zstd", packed),
        ("br", body),
        ("gzip, gzip", packed),
        ("gzip", gzip.compress(b" " * 40_000_000 + body, 9)),
    )
    name, data = rng.choice(variants)
    return Case("odd encoding", http(data, key, f"content-encoding: {name}"))


def odd_head(rng: random.Random, key: str) -> Case:
    """Heads that servers and proxies have been fooled with."""
    body = json.dumps(sane(rng)).encode()
    lines = (
        ["content-length: 3"],
        ["transfer-encoding: chunked"],
        ["transfer-encoding: chunked, identity"],
        ["transfer-encoding:\x0bchunked"],
        ["authorization: Bearer other"],
        ["x-api-key: a", "x-api-key: b"],
        ["x-bomb: " + "a" * rng.choice((9_000, 100_000))],
        [f"x-many-{number}: 1" for number in range(rng.choice((200, 5_000)))],
        ["x-fold: a", " b"],
        ["no colon"],
        [": no name"],
        ["x nul: \x00"],
        ["x-nul: a\x00b"],
        ["expect: 200-maybe"],
        ["content-type: text/plain"],
        ["traceparent: 00-zz-zz-01"],
        ["x-request-id: " + "\xff" * 300],
        ["connection: upgrade", "upgrade: h2c"],
    )
    return Case("odd head", http(body, key, *rng.choice(lines)))


def odd_length(rng: random.Random, key: str) -> Case:
    """A length that is not the body's."""
    body = json.dumps(sane(rng)).encode()
    length = rng.choice((-1, len(body) + 10, 10**12, 2**70))
    return Case("odd length", http(body, key, length=length), incomplete=True)


def odd_chunks(rng: random.Random, key: str) -> Case:
    """Chunked framing gone wrong."""
    head = http(b"", key, "transfer-encoding: chunked").replace(b"content-length: 0\r\n", b"")
    body = json.dumps(sane(rng)).encode()
    size = f"{len(body):x}".encode()
    bad = (
        b"zz\r\n",
        b"-5\r\n",
        b"f" * 40 + b"\r\n",
        b"5;" + b"x" * 20_000 + b"\r\n",
        b"5\r\nab",
        b"\n",
        size + b"\n" + body,
    )
    good = size + b"\r\n" + body + b"\r\n0\r\n\r\n"
    return Case("odd chunks", head + rng.choice((*bad, good)), incomplete=True)


def odd_line(rng: random.Random, key: str) -> Case:
    """Request lines that are none."""
    lines = (
        b"GET / HTTP/0.9\r\n\r\n",
        b"GET /\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n\r\n\r\n",
        b"POST  /v1/chat/completions  HTTP/1.1\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1 x\r\n\r\n",
        b"M\x00TH /v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET http://elsewhere/v1/models HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET //v1//models HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /v1/../admin/v1/config HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /" + b"a" * rng.choice((8_000, 100_000)) + b" HTTP/1.1\r\nhost: a\r\n\r\n",
        b"GET /%00%ff%2e%2e HTTP/1.1\r\nhost: a\r\n\r\n",
        b"OPTIONS * HTTP/1.1\r\nhost: a\r\n\r\n",
        b"CONNECT a:1 HTTP/1.1\r\nhost: a\r\n\r\n",
        bytes(rng.randrange(256) for _ in range(rng.randint(1, 400))),
    )
    return Case("odd line", rng.choice(lines), incomplete=True)


def half_sent(rng: random.Random, key: str) -> Case:
    """A good request whose sender stops in the middle."""
    whole = http(json.dumps(sane(rng)).encode(), key)
    return Case("half sent", whole[: rng.randrange(1, len(whole))], incomplete=True)


MAKERS: dict[Callable[[random.Random, str], Case], int] = {
    odd_field: 40,
    cut_json: 8,
    flipped_bytes: 10,
    not_an_object: 6,
    odd_encoding: 6,
    odd_head: 12,
    odd_length: 4,
    odd_chunks: 5,
    odd_line: 6,
    half_sent: 3,
}


def cases(rng: random.Random, key: str, count: int) -> list[Case]:
    """So many cases, mixed."""
    return [make(rng, key) for make in rng.choices(list(MAKERS), weights=list(MAKERS.values()), k=count)]
