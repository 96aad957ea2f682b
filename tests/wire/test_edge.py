"""Manners of the listener: paths, methods, headers, bodies that are none."""

import asyncio
import gzip
import json
from dataclasses import replace

import pytest

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import completes, engine

CHAT = "/v1/chat/completions"
BODY = b'{"model":"glm","messages":[{"role":"user","content":"hi"}]}'


async def raw(running: Running, request: bytes, *, limit_s: float = 3.0) -> bytes:
    """Send bytes as they are; returns what comes back until the gateway closes or is silent."""
    host, port = running.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(request)
    got = b""
    try:
        async with asyncio.timeout(limit_s):
            while piece := await reader.read(65536):
                got += piece
    except (TimeoutError, ConnectionError):
        pass
    writer.close()
    return got


def message(answer: bytes) -> str:
    return str(json.loads(answer.split(b"\r\n\r\n", 1)[1])["error"]["message"])


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/livez", 200),
        ("GET", "/readyz", 200),
        ("GET", "/startupz", 200),
        ("HEAD", "/", 200),
        ("GET", "/", 200),
        ("GET", "/v1/models", 200),
        ("GET", "/v1/models/", 200),
        ("HEAD", "/v1/models", 200),
        ("GET", "/v1/models/glm", 200),
        ("GET", "/v1/models/glm-anything", 200),
        ("GET", "/v1/models/other", 404),
        ("GET", CHAT, 405),
        ("DELETE", CHAT, 405),
        ("OPTIONS", CHAT, 204),
        ("GET", "/nothing", 404),
        ("POST", "/v1/messagesx", 404),
        ("GET", "/metrics", 404),
        ("GET", "/admin/v1/pools", 404),
    ],
)
async def test_paths_and_methods(method: str, path: str, status: int) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.client.request(method, running.url + path) as answer:
            assert answer.status == status
            if method == "HEAD":
                assert await answer.read() == b""
            if status >= 400:
                assert (await answer.json())["error"]["message"]
            if status == 405:
                assert "POST" in answer.headers["allow"]


async def test_a_trailing_slash_means_the_same() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.client.post(running.url + CHAT + "/", data=BODY) as answer:
            assert answer.status == 200


async def test_the_model_list_speaks_both_vendors() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        headers = {"anthropic-version": "2023-06-01"}
        async with running.client.get(running.url + "/v1/models", headers=headers) as answer:
            listed = await answer.json()
    assert listed["object"] == "list"
    assert (listed["has_more"], listed["first_id"], listed["last_id"]) == (False, "glm", "glm")
    assert listed["data"][0]["id"] == "glm"
    assert listed["data"][0]["type"] == "model"


BAD = {
    "no json": (b"{", 400, "JSON"),
    "not utf-8": (b'{"model":"\xff"}', 400, ""),
    "no object": (b"[]", 400, "object"),
    "empty": (b"", 400, "JSON"),
    "no model": (b'{"messages":[]}', 400, "model"),
    "no messages": (b'{"model":"glm"}', 400, "messages"),
    "wrong type": (b'{"model":"glm","messages":"hi"}', 400, "messages"),
    "bad number": (BODY[:-1] + b',"temperature":"hot"}', 400, "temperature"),
    "n too large": (BODY[:-1] + b',"n":99}', 400, "n"),
    "deep": (b'{"model":"glm","messages":' + b"[" * 5000 + b"]" * 5000 + b"}", 400, ""),
    "unknown model": (BODY.replace(b"glm", b"nope"), 404, "nope"),
}


@pytest.mark.parametrize("name", BAD)
async def test_bad_bodies_name_what_is_wrong(name: str) -> None:
    body, status, word = BAD[name]
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.client.post(running.url + CHAT, data=body) as answer:
            assert answer.status == status
            told = (await answer.json())["error"]["message"]
        assert word in told
        assert "\n" not in told
        assert not made.chats
        async with running.chat() as answer:
            assert answer.status == 200


WIRE = {
    "two content types": (b"content-type: a/b\r\ncontent-type: c/d\r\ncontent-length: 0\r\n", b" 400 "),
    "two keys": (b"authorization: Bearer a\r\nauthorization: Bearer b\r\ncontent-length: 0\r\n", b" 400 "),
    "two lengths": (b"content-length: 1\r\ncontent-length: 2\r\n", b" 400 "),
    "length and chunks": (b"content-length: 1\r\ntransfer-encoding: chunked\r\n", b" 400 "),
    "header without a colon": (b"nonsense\r\n", b" 400 "),
    "a huge header": (b"x-a: " + b"a" * 20_000 + b"\r\n", b" 431 "),
    "many headers": (b"".join(b"x-%d: 1\r\n" % n for n in range(500)), b" 431 "),
}


@pytest.mark.parametrize("name", WIRE)
async def test_malformed_heads_are_refused_in_one_line(name: str) -> None:
    lines, status = WIRE[name]
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        answer = await raw(running, b"POST " + CHAT.encode() + b" HTTP/1.1\r\nhost: x\r\n" + lines + b"\r\n")
        assert status in answer.split(b"\r\n")[0]
        assert "\n" not in message(answer)
        async with running.chat() as good:
            assert good.status == 200


async def test_what_is_no_http_is_refused() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        assert b" 400 " in (await raw(running, b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n")).split(b"\r\n")[0]


async def test_a_body_over_the_limit_is_refused() -> None:
    async with engine(completes()) as made:
        async with gateway(config_of([pool_of(made.url)], listen={"body_limit_bytes": 1000})) as running:
            async with running.chat({"user": "x" * 2000}) as answer:
                assert answer.status == 413
                assert (await answer.json())["error"]["code"] == "request_too_large"


async def test_half_a_body_is_given_up() -> None:
    async with engine(completes()) as made:
        async with gateway(config_of([pool_of(made.url)], listen={"request_timeout_s": 0.2})) as running:
            head = b"POST " + CHAT.encode() + b" HTTP/1.1\r\nhost: x\r\ncontent-length: 50\r\n\r\n"
            answer = await raw(running, head + b"{")
            assert b" 408 " in answer.split(b"\r\n")[0]


async def test_a_connection_that_never_asks_is_closed() -> None:
    async with engine(completes()) as made:
        async with gateway(config_of([pool_of(made.url)], listen={"request_timeout_s": 0.2})) as running:
            started = asyncio.get_running_loop().time()
            assert await raw(running, b"POST ") == b""
            assert asyncio.get_running_loop().time() - started < 2.0


async def test_expect_100_continue() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        head = b"POST %b HTTP/1.1\r\nhost: x\r\nexpect: 100-continue\r\nconnection: close\r\ncontent-length: %d\r\n\r\n"
        answer = await raw(running, head % (CHAT.encode(), len(BODY)) + BODY)
        assert answer.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n")


async def test_compressed_bodies() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        for coding, body, status in (("gzip", gzip.compress(BODY), 200), ("br", BODY, 415), ("gzip", BODY, 400)):
            headers = {"content-encoding": coding}
            async with running.client.post(running.url + CHAT, data=body, headers=headers) as answer:
                assert answer.status == status


async def test_http_1_0_gets_an_answer_that_ends_with_the_connection() -> None:
    body = BODY.replace(b'"glm",', b'"glm","stream":true,')
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        head = b"POST %b HTTP/1.0\r\nhost: x\r\ncontent-length: %d\r\n\r\n"
        answer = await raw(running, head % (CHAT.encode(), len(body)) + body)
        assert b"transfer-encoding" not in answer.lower()
        assert answer.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize("line", [b"GET / HTTP/0.9", b"GET /"])
async def test_older_than_http_1_0_is_answered_in_it(line: bytes) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        assert (await raw(running, line + b"\r\n\r\n")).startswith(b"HTTP/1.0 ")


async def test_browsers_of_allowed_origins_only() -> None:
    listen = {"cors": {"origins": ["https://app.example"]}}
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)], listen=listen)) as running:
        for origin, allowed in (("https://app.example", "https://app.example"), ("https://evil.example", None)):
            headers = {"origin": origin, "access-control-request-method": "POST"}
            async with running.client.options(running.url + CHAT, headers=headers) as answer:
                assert answer.headers.get("access-control-allow-origin") == allowed
            async with running.chat(headers={"origin": origin}) as answer:
                assert answer.status == 200
                assert answer.headers.get("access-control-allow-origin") == allowed


async def test_keys_are_asked_for() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)], auth={"mode": "keys"})) as running:
        async with running.chat() as answer:
            assert answer.status == 401
            assert answer.headers["www-authenticate"] == "Bearer"
        async with running.client.get(running.url + "/v1/models") as answer:
            assert answer.status == 401


async def test_the_admin_port_needs_its_token() -> None:
    async with engine(completes()) as made:
        async with gateway(config_of([pool_of(made.url)], admin={"token": "t0ken-for-tests"})) as running:
            async with running.client.get(running.admin_url + "/admin/v1/pools") as answer:
                assert answer.status == 401
            wrong = b"GET /admin/v1/pools HTTP/1.1\r\nhost: a\r\nauthorization: Bearer \xff\r\n\r\n"
            assert b" 401 " in await raw(replace(running, url=running.admin_url), wrong, limit_s=0.5)
            headers = {"authorization": "Bearer t0ken-for-tests"}
            for bad in ("x", "-1", "²", "9" * 5000):
                path = f"{running.admin_url}/admin/v1/exchanges?limit={bad}"
                async with running.client.get(path, headers=headers) as answer:
                    assert answer.status == 400
            for path in ("pools", "replicas", "config", "exchanges"):
                async with running.client.get(f"{running.admin_url}/admin/v1/{path}", headers=headers) as answer:
                    assert answer.status == 200
                    assert "t0ken-for-tests" not in await answer.text()
            async with running.client.get(running.admin_url + "/metrics") as answer:
                assert "headrace_exchanges" in await answer.text()
