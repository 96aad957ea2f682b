"""A reload under traffic: what is in flight goes on as it began, what comes later sees the new configuration."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.known import installed
from gateway.config.loader import Loaded, load
from gateway.config.reload import Reloader
from tests.support.app import config_of, gateway, pool_of
from tests.support.engine import DONE, ROLE, STREAM_HEAD, Answer, Asked, Engine, chunk, completes, engine, finish, text
from tiering.tokens import ChatTokenizer

OLD_KEY, NEW_KEY = "hr_old", "hr_new"


def config(path: Path, url: str, key: str, more: str = "") -> None:
    tree = {
        "listen": {"port": 0, "admin_port": 0},
        "tenants": [{"name": "t", "keys": [{"id": "k", "sha256": hashlib.sha256(key.encode()).hexdigest()}]}],
        "pools": [pool_of(url)],
        "models": [{"name": "glm", "pools": ["a"]}],
    }
    path.write_text(json.dumps(tree) + more)


def read(path: Path) -> Loaded:
    return load(path, installed(), environ={})


def waits(go_on: asyncio.Event) -> Answer:
    """A stream whose second half comes when the test says so."""

    async def answer(_: Engine, __: asyncio.StreamReader, writer: asyncio.StreamWriter, ___: Asked) -> None:
        writer.write(STREAM_HEAD + chunk(ROLE) + chunk(text("one ")))
        await go_on.wait()
        writer.write(chunk(text("two")) + chunk(finish()) + chunk(DONE) + b"0\r\n\r\n")
        await writer.drain()

    return answer


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def test_an_exchange_outlives_its_configuration(tmp_path: Path) -> None:
    path, go_on = tmp_path / "headrace.yaml", asyncio.Event()
    async with engine(waits(go_on)) as old, engine(completes()) as new:
        config(path, old.url, OLD_KEY)
        loaded = read(path)
        async with gateway(loaded.config) as running:
            reloader = Reloader(loaded, lambda: read(path), running.app.apply)
            async with running.chat({"stream": True}, headers=bearer(OLD_KEY)) as stream:
                first = await stream.content.readuntil(b"one ")
                config(path, new.url, NEW_KEY)
                assert await reloader.reload()
                async with asyncio.timeout(10):  # a replica gets traffic once it was probed
                    while running.app.not_ready():
                        await asyncio.sleep(0.01)
                for key, status in ((OLD_KEY, 401), (NEW_KEY, 200)):
                    async with running.chat(headers=bearer(key)) as answer:
                        assert answer.status == status
                go_on.set()
                rest = await stream.read()
            assert (first + rest).count(b"data: ") == 5
            assert rest.endswith(b"data: [DONE]\n\n")
            await running.settled()
            assert [len(made.chats) for made in (old, new)] == [1, 1]


async def test_a_refused_configuration_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    async with engine(completes()) as made:
        config(path, made.url, OLD_KEY)
        loaded = read(path)
        async with gateway(loaded.config) as running:
            reloader = Reloader(loaded, lambda: read(path), running.app.apply)
            config(path, "http://127.0.0.1:1", NEW_KEY, more="\nfaulty: [")
            assert not await reloader.reload()
            async with running.chat(headers=bearer(OLD_KEY)) as answer:
                assert answer.status == 200


@pytest.mark.parametrize("reloads", [1, 3])
@pytest.mark.parametrize("routing", ["p2c", "latency"])
@pytest.mark.parametrize("content", ["hi", [{"type": "text", "text": "hi"}]])
async def test_a_pool_may_leave_while_a_request_arrives(routing: str, content: object, reloads: int) -> None:
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        body = json.dumps({"model": "glm", "messages": [{"role": "user", "content": content}]}).encode()
        yield body[:20]
        began.set()
        await go_on.wait()
        yield body[20:]

    async with engine(completes()) as leaves, engine(completes()) as stays:
        pools = [pool_of(leaves.url), pool_of(stays.url, name="b")]
        models = [{"name": "glm", "pools": ["a", "b"], "routing": routing}]
        async with gateway(config_of(pools, models=models)) as running:
            asked = asyncio.create_task(running.client.post(f"{running.url}/v1/chat/completions", data=slowly()))
            await began.wait()
            while not running.app.telemetry.live:
                await asyncio.sleep(0.005)
            for _ in range(reloads):
                await running.app.apply(config_of(pools[1:]), ())
            go_on.set()
            answer = await asked
            assert answer.status == 200
            assert (len(leaves.chats), len(stays.chats)) == (0, 1)
            await running.settled()


async def test_tokenizers_are_loaded_beside_the_traffic_and_for_their_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    loads: list[tuple[str, str, bool]] = []

    def load(folder: Path, _: object, engine: str) -> ChatTokenizer:
        loads.append((str(folder), engine, threading.current_thread() is threading.main_thread()))
        raise ValueError("no files here")

    async with engine(completes()) as made:
        first, second = pool_of(made.url), pool_of(made.url, name="b", engine="sglang", tokenizer="/t")
        async with gateway(config_of([first])) as running:
            monkeypatch.setattr(ChatTokenizer, "load", load)
            await running.app.apply(config_of([{**first, "tokenizer": "/t"}, second]), ())
            assert loads == [("/t", "vllm", False), ("/t", "sglang", False)]
