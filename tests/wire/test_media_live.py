"""The media guard in the pipeline: what the engine gets of a URL in a request, and what the client is told of it."""

import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.media.guard import MediaGuard, build
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import completes, engine

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10
INLINE = "data:image/png;base64," + base64.b64encode(PNG).decode()
PRIVATE = "http://10.0.0.1/a.png"
HTTP = {"media": {"schemes": ["http", "https"]}}


@asynccontextmanager
async def pictures() -> AsyncIterator[str]:
    """URL of an image on loopback."""

    async def image(_: web.Request) -> web.Response:
        return web.Response(body=PNG, content_type="image/png")

    app = web.Application()
    app.router.add_get("/a.png", image)
    async with TestServer(app, host="127.0.0.1") as server:
        yield str(server.make_url("/a.png"))


@pytest.fixture
def loopback_is_public(monkeypatch: pytest.MonkeyPatch) -> None:
    """The guard of these gateways takes 127.0.0.1 for the internet."""

    def lenient() -> MediaGuard:
        return build(allowed=lambda address: str(address) == "127.0.0.1")

    monkeypatch.setattr("gateway.app.build_media_guard", lenient)


def bodies(url: str) -> list[tuple[str, dict[str, Any]]]:
    """A request with one image at `url` in each dialect that has images."""
    chat = {"type": "image_url", "image_url": {"url": url}}
    return [
        ("chat/completions", {"messages": [{"role": "user", "content": [chat]}]}),
        ("responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": url}]}]}),
        (
            "messages",
            {
                "max_tokens": 9,
                "system": "Look.",
                "messages": [{"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": url}}]}],
            },
        ),
    ]


async def ask(one: Running, path: str, body: dict[str, Any]) -> tuple[int, Any]:
    async with one.client.post(f"{one.url}/v1/{path}", json={"model": "glm", **body}) as answer:
        return answer.status, await answer.json()


@pytest.mark.usefixtures("loopback_is_public")
async def test_the_engine_gets_the_image_and_not_its_address() -> None:
    async with pictures() as url, engine(completes()) as made:
        async with gateway(config_of([pool_of(made.url, **HTTP)])) as one:
            for path, body in bodies(url):
                status, _ = await ask(one, path, body)
                assert status == 200
            for chat in made.chats:
                text = json.dumps(chat.body)
                assert INLINE in text
                assert "a.png" not in text
            await one.settled()


@pytest.mark.usefixtures("loopback_is_public")
async def test_forward_leaves_the_url_and_refuse_takes_none() -> None:
    async with pictures() as url, engine(completes()) as made:
        forward = {"media": {"schemes": ["http"], "policy": "forward"}}
        async with gateway(config_of([pool_of(made.url, **forward)])) as one:
            assert (await ask(one, *bodies(url)[0]))[0] == 200
            assert url in json.dumps(made.chats[-1].body)
        asked = len(made.chats)
        async with gateway(config_of([pool_of(made.url, media={"schemes": ["http"], "policy": "refuse"})])) as one:
            status, told = await ask(one, *bodies(url)[0])
            assert (status, told["error"]["param"]) == (400, "messages[0].content[0].image_url.url")
            assert (await ask(one, *bodies(INLINE)[0]))[0] == 200
        assert len(made.chats) == asked + 1


async def test_a_private_address_is_refused_in_every_dialect() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url, **HTTP)])) as one:
        fields = []
        for path, body in bodies(PRIVATE):
            status, told = await ask(one, path, body)
            assert status == 400
            assert "the image is at an address that is not allowed" in told["error"]["message"]
            fields.append(told["error"].get("param") or told["error"]["message"])
        assert fields[:2] == ["messages[0].content[0].image_url.url", "input"]
        assert fields[2].startswith("messages: ")
        assert not made.chats
        await one.settled()


async def test_counting_fetches_nothing_unguarded() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url, **HTTP)])) as one:
        path, body = bodies(PRIVATE)[2]
        status, told = await ask(one, f"{path}/count_tokens", body)
        assert (status, told["error"]["type"]) == (400, "invalid_request_error")
        assert not any(PRIVATE in json.dumps(asked.body) for asked in made.asked)


IMAGE = {"type": "image_url", "image_url": {"url": PRIVATE}}
LOOK = {"messages": [{"role": "user", "content": [IMAGE]}]}


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("embeddings", LOOK, "messages"),
        ("tokenize", LOOK, "messages"),
        ("chat/completions/render", LOOK, "messages"),
        ("embeddings", {"input": [{"text": "a", "image": PRIVATE}]}, "input"),
        ("embeddings", {"input": {"image_url": PRIVATE}}, "input"),
        ("rerank", {"query": "a", "documents": {"content": [IMAGE]}}, "documents"),
        ("rerank", {"query": {"content": [IMAGE]}, "documents": ["a"]}, "query"),
    ],
)
async def test_no_other_endpoint_lets_an_engine_fetch_a_private_address(path: str, body: Any, param: str) -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url, **HTTP)])) as one:
        status, told = await ask(one, path, body)
        assert (status, told["error"]["param"]) == (400, param)
        assert not any(PRIVATE in json.dumps(asked.body) for asked in made.asked)
