"""Probing over real sockets: the aiohttp client, and an engine that hangs, breaks or floods."""

import asyncio
import time

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from backends.engines import builtin
from backends.probing import AiohttpProbe, Target, probe_pool
from tests.unit.backends.probing.fake import FakeEngine


class SystemTime:
    def time(self):
        return time.time()

    def monotonic(self):
        return time.monotonic()


def served(engine, keys):
    """The engine in memory behind HTTP; `keys` collects the Authorization headers."""

    async def handle(request):
        keys.add(request.headers.get("authorization"))
        if request.method == "GET":
            answer = await engine.get(request.path_qs)
        else:
            answer = await engine.post(request.path, await request.json())
        return web.Response(status=answer.status, headers=dict(answer.headers), body=answer.body)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handle)
    return TestServer(app)


async def test_the_contract_over_http_is_the_contract_in_memory():
    engine, keys = FakeEngine("sglang"), set()
    target = Target("a", builtin()["sglang"], "glm")
    async with served(engine, keys) as server, aiohttp.ClientSession() as session:
        client = AiohttpProbe(session, str(server.make_url("/")), api_key="secret")
        over_http = await probe_pool(target, client, clock=SystemTime())
    in_memory = await probe_pool(target, FakeEngine("sglang"), clock=SystemTime())
    assert over_http.contract.terms == in_memory.contract.terms
    assert over_http.complete
    assert keys == {"Bearer secret"}


async def test_nobody_there():
    async with aiohttp.ClientSession() as session:
        client = AiohttpProbe(session, "http://127.0.0.1:1", timeout_s=1.0)
        report = await probe_pool(Target("a", builtin()["vllm"], "glm"), client, clock=SystemTime())
    assert not report.complete
    assert report.incidents == ()


@pytest.mark.parametrize("fault", ["hang", "reset", "redirect"])
async def test_trouble_is_status_zero_or_told_as_it_is(fault):
    async def handle(request):
        if fault == "hang":
            await asyncio.sleep(30)
        if fault == "redirect":
            raise web.HTTPFound("http://127.0.0.1:1/elsewhere")
        request.transport.abort()
        return web.Response()

    app = web.Application()
    app.router.add_get("/v1/models", handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        answer = await AiohttpProbe(session, str(server.make_url("/")), timeout_s=0.2).get("/v1/models")
    assert answer.status == (302 if fault == "redirect" else 0)


async def test_a_flood_is_cut():
    async def handle(request):
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except ConnectionError:
            return response

    app = web.Application()
    app.router.add_get("/metrics", handle)
    async with TestServer(app) as server, aiohttp.ClientSession() as session:
        answer = await AiohttpProbe(session, str(server.make_url("/"))).get("/metrics")
    assert 8 * 1024 * 1024 < len(answer.body) < 9 * 1024 * 1024
