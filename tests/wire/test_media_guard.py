"""The media guard against servers on loopback: the seven ways in that must stay shut, and the one that is open.

The rule of these tests allows 127.0.0.1 (the outside) and nothing else; 127.0.0.2 stands for an internal host.
"""

import asyncio
import base64
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.abc import AbstractResolver
from aiohttp.test_utils import TestServer

from gateway.config.contracts import Media
from gateway.errors import Cause, GatewayError
from gateway.media.guard import build, media_items
from gateway.media.resolver import SystemResolver

PNG = b"\x89PNG\r\n\x1a\n" + b"pixels" * 10
OUTSIDE, INSIDE = "127.0.0.1", "127.0.0.2"
POLICY = Media(schemes={"http", "https"}, item_limit_bytes=100_000, total_limit_bytes=150_000, timeout_s=30.0)


class Names(AbstractResolver):
    """Each name has a list of addresses; every question takes the next one, the last for ever."""

    def __init__(self, **names):
        self.names = {name.replace("_", "."): list(addresses) for name, addresses in names.items()}
        self.asked = []

    async def resolve(self, host, port=0, family=socket.AF_INET):
        self.asked.append(host)
        addresses = self.names.get(host)
        if addresses is None:
            raise OSError("unknown name")
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return [
            {"hostname": host, "host": each, "port": port, "family": socket.AF_INET, "proto": 0, "flags": 0}
            for each in address.split()
        ]

    async def close(self):
        pass


class World:
    """An outside server, an internal one on the same port that nobody may reach, and a guard between."""

    def __init__(self, guard, names, port, internal_hits):
        self.guard, self.names, self.port, self.internal_hits = guard, names, port, internal_hits

    def url(self, host, path="/a.png"):
        return f"http://{host}:{self.port}{path}"

    async def admit(self, *urls, policy=POLICY):
        content = [{"type": "image_url", "image_url": {"url": url}} for url in urls]
        await self.guard.admit(list(media_items([{"role": "user", "content": content}])), policy)
        return [part["image_url"]["url"] for part in content]

    async def refused(self, *urls, policy=POLICY):
        with pytest.raises(GatewayError) as error:
            await self.admit(*urls, policy=policy)
        assert error.value.cause is Cause.BAD_REQUEST
        assert error.value.param == f"messages[0].content[{len(urls) - 1}].image_url.url"
        assert self.internal_hits == []
        return error.value.message


def outside(seen):
    routes = web.RouteTableDef()

    @routes.get("/a.png")
    async def image(request):
        seen.append(dict(request.headers))
        return web.Response(body=PNG, content_type="image/png")

    @routes.get("/page")
    async def page(request):
        return web.Response(text="<html>", content_type="image/png")

    @routes.get("/big")
    async def big(request):
        return web.Response(body=PNG + bytes(100_000), content_type="image/png")

    @routes.get("/endless")
    async def endless(request):
        response = web.StreamResponse(headers={"content-type": "image/png"})
        await response.prepare(request)
        await response.write(PNG)
        try:
            while True:
                await response.write(bytes(8192))
        except ConnectionError:
            return response

    @routes.get("/slow")
    async def slow(request):
        await asyncio.sleep(30)

    @routes.get("/zipped")
    async def zipped(request):
        return web.Response(body=b"\x1f\x8b", headers={"content-encoding": "gzip"}, content_type="image/png")

    @routes.get("/to")
    async def redirect(request):
        raise web.HTTPFound(request.query["url"])

    @routes.get("/loop")
    async def loop(request):
        raise web.HTTPFound("/loop")

    app = web.Application()
    app.add_routes(routes)
    return app


@asynccontextmanager
async def world(**names):
    seen, hits = [], []

    async def secret(request):
        hits.append(request.path)
        return web.Response(body=PNG, content_type="image/png")

    internal = web.Application()
    internal.router.add_get("/{path:.*}", secret)
    async with TestServer(outside(seen), host=OUTSIDE) as server:
        async with TestServer(internal, host=INSIDE, port=server.port):
            resolver = Names(img_test=[OUTSIDE], **names)
            guard = build(allowed=lambda address: str(address) == OUTSIDE, resolver=resolver)
            try:
                made = World(guard, resolver, server.port, hits)
                made.seen = seen
                yield made
            finally:
                await guard.close()


async def test_a_normal_image_is_inlined():
    async with world() as here:
        [url] = await here.admit(here.url("img.test"))
        assert url == "data:image/png;base64," + base64.b64encode(PNG).decode()
        [headers] = here.seen
        assert {"Authorization", "Cookie", "Referer"}.isdisjoint(headers)


async def test_1_an_address_as_a_decimal_number():
    async with world(**{"2130706434": [INSIDE]}) as here:
        assert "number" in await here.refused(f"http://2130706434:{here.port}/a.png")
        assert here.names.asked == []


async def test_2_an_address_mapped_into_ipv6():
    async with world() as here:
        assert "address" in await here.refused(f"http://[::ffff:{INSIDE}]:{here.port}/a.png")


async def test_3_a_redirect_to_a_link_local_address():
    async with world(meta_test=[INSIDE]) as here:
        assert "address" in await here.refused(here.url("img.test", "/to?url=http://169.254.169.254/latest/meta-data/"))
        assert "address" in await here.refused(here.url("img.test", f"/to?url={here.url(INSIDE)}"))
        assert "address" in await here.refused(here.url("img.test", f"/to?url={here.url('meta.test')}"))
        assert "scheme" in await here.refused(here.url("img.test", "/to?url=file:///etc/passwd"))


async def test_4_a_name_that_changes_its_address_between_check_and_use():
    async with world(rebind_test=[OUTSIDE, INSIDE]) as here:
        # The first answer is checked and used: there is no second question to answer otherwise.
        [url] = await here.admit(here.url("rebind.test"))
        assert url.startswith("data:")
        assert here.names.asked == ["rebind.test"]
        assert "could not be fetched" in await here.refused(here.url("nobody.test"))
    async with world(rebind_test=[OUTSIDE, INSIDE]) as here:
        # A redirect asks again, and the new answer is checked again.
        assert "address" in await here.refused(here.url("rebind.test", f"/to?url={here.url('rebind.test')}"))
        assert here.names.asked == ["rebind.test", "rebind.test"]


async def test_4_one_bad_address_among_good_ones():
    async with world(both_test=[f"{OUTSIDE} {INSIDE}"]) as here:
        assert "address" in await here.refused(here.url("both.test"))


async def test_5_a_host_hidden_behind_user_information():
    async with world() as here:
        assert "user information" in await here.refused(f"http://img.test@{INSIDE}:{here.port}/a.png")


async def test_6_a_file():
    async with world() as here:
        assert "scheme" in await here.refused("file:///etc/passwd")


@pytest.mark.parametrize("path", ["/big", "/endless"])
async def test_7_a_body_without_end(path):
    async with world() as here:
        assert "larger than 100000 bytes" in await here.refused(here.url("img.test", path))


async def test_all_media_together_have_a_limit():
    async with world() as here:
        policy = POLICY.model_copy(update={"total_limit_bytes": 2 * len(PNG)})
        await here.admit(*[here.url("img.test")] * 2, policy=policy)
        with pytest.raises(GatewayError, match="together larger"):
            await here.admit(*[here.url("img.test")] * 3, policy=policy)
        with pytest.raises(GatewayError, match="more than 64 media items"):
            await here.admit(*[here.url("img.test")] * 65)


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("/page", "is no image"),
        ("/zipped", "compressed"),
        ("/loop", "redirects more than 3 times"),
        ("/missing", "status 404"),
        ("/slow", "took longer than 0.2 s"),
    ],
)
async def test_other_answers(path, why):
    async with world() as here:
        policy = POLICY.model_copy(update={"timeout_s": 0.2}) if path == "/slow" else POLICY
        assert why in await here.refused(here.url("img.test", path), policy=policy)


async def test_nothing_is_changed_when_one_is_refused():
    async with world() as here:
        content = [
            {"type": "image_url", "image_url": {"url": here.url("img.test", path)}} for path in ("/a.png", "/page")
        ]
        with pytest.raises(GatewayError):
            await here.guard.admit(list(media_items([{"role": "user", "content": content}])), POLICY)
        assert content[0]["image_url"]["url"] == here.url("img.test")


async def test_forward_checks_and_leaves_the_url():
    async with world(inside_test=[INSIDE]) as here:
        policy = POLICY.model_copy(update={"policy": "forward"})
        assert await here.admit(here.url("img.test"), policy=policy) == [here.url("img.test")]
        assert here.seen == []
        assert "address" in await here.refused(here.url("inside.test"), policy=policy)
        assert "address" in await here.refused(here.url("nobody.test"), policy=policy)
        assert "address" in await here.refused(here.url(INSIDE), policy=policy)


async def test_forward_refuses_what_can_be_no_name():
    guard = build(allowed=lambda _: True)  # asks the resolver of this machine, which raises UnicodeError
    item = list(media_items([{"content": [{"type": "image_url", "image_url": f"https://{'a' * 64}.test/"}]}]))
    with pytest.raises(GatewayError, match="not known"):
        await guard.admit(item, POLICY.model_copy(update={"policy": "forward"}))
    await guard.close()


class Silence(Names):
    """No name server answers, but for names that are known."""

    async def resolve(self, host, port=0, family=socket.AF_INET):
        if host not in self.names:
            await asyncio.sleep(3600)
        return await super().resolve(host, port, family)


async def test_forward_does_not_wait_for_names_for_ever():
    guard = build(allowed=lambda _: True, resolver=Silence(img_test=[OUTSIDE]))
    policy = POLICY.model_copy(update={"policy": "forward", "timeout_s": 0.2})
    urls = [f"http://silent-{number}.test/a.png" for number in range(8)]
    content = [{"type": "image_url", "image_url": {"url": url}} for url in ("http://img.test/a.png", *urls)]
    async with asyncio.timeout(1.0):  # side by side: one after the other takes 1.6 s
        with pytest.raises(GatewayError, match=r"took longer than .* to look up") as error:
            await guard.admit(list(media_items([{"content": content}])), policy)
    assert error.value.param == "messages[0].content[1].image_url.url"
    await guard.close()


async def test_names_that_hang_hold_up_nobody_else(monkeypatch):
    hang = threading.Event()
    monkeypatch.setattr("gateway.media.resolver.socket.getaddrinfo", lambda *_, **__: hang.wait(10))
    asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
    guard = build(allowed=lambda _: True)
    policy = POLICY.model_copy(update={"policy": "forward", "timeout_s": 0.05})
    content = [{"type": "image_url", "image_url": {"url": f"http://silent-{n}.test/a.png"}} for n in range(4)]
    try:
        with pytest.raises(GatewayError, match="to look up"):
            await guard.admit(list(media_items([{"content": content}])), policy)
        async with asyncio.timeout(1.0):
            assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        hang.set()
        await guard.close()


async def test_the_system_knows_loopback():
    resolver = SystemResolver()
    (found, *_) = await resolver.resolve("127.0.0.1", 8080)
    assert (found["host"], found["port"], found["family"]) == ("127.0.0.1", 8080, socket.AF_INET)
    await resolver.close()


async def test_refuse_takes_data_urls_only():
    async with world() as here:
        policy = POLICY.model_copy(update={"policy": "refuse"})
        assert "data URLs only" in await here.refused(here.url("img.test"), policy=policy)
        assert await here.admit("data:image/png;base64,AAAA", policy=policy) == ["data:image/png;base64,AAAA"]


@pytest.mark.parametrize("policy", ["fetch_and_inline", "forward", "refuse"])
async def test_data_urls_are_bounded_too(policy):
    async with world() as here:
        url = "data:image/png;base64," + "A" * 200_000
        assert "larger" in await here.refused(url, policy=POLICY.model_copy(update={"policy": policy}))
