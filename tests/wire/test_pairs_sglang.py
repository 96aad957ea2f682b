"""SGLang pairs over loopback: both sides at once in one room, one answer, and an end of both when either fails."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.support.app import gateway
from tests.support.engine import (
    DONE,
    LAST_CHUNK,
    ROLE,
    STREAM_HEAD,
    Asked,
    Engine,
    chunk,
    completes,
    engine,
    finish,
    hangs,
    response,
    says,
    text,
)
from tests.support.pairs import after, first_then, paired, pairs

FAILS = says(response(500, {"object": "error", "message": "Decode handshake failed", "code": 500}))


def rooms(side: Engine) -> list[int]:
    return [asked.body["bootstrap_room"] for asked in side.chats]


def aborted(side: Engine) -> list[str]:
    return [asked.body["rid"] for asked in side.asked if asked.path == "/abort_request"]


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not condition():
            await asyncio.sleep(0.005)


async def test_both_sides_meet_in_one_room_and_decode_answers() -> None:
    async with engine(completes()) as prefill, engine(completes()) as decode:
        async with pairs(prefill, decode, "sglang") as running:
            async with running.chat({"stream": True, "stream_options": {"include_usage": True}}) as answer:
                assert answer.status == 200
                assert b"Hello" in await answer.read()
            await until(lambda: prefill.chats)
            await running.settled()
        (first,), (second,) = prefill.chats, decode.chats
        assert first.body["stream"] is False
        assert "stream_options" not in first.body
        assert second.body["stream"] is True
        assert first.body["messages"] == second.body["messages"]
        assert first.body["rid"] == second.body["rid"]
        for asked in (first, second):
            assert asked.body["bootstrap_host"] == "127.0.0.1"
            assert asked.body["bootstrap_port"] == 8901
        assert rooms(prefill) == rooms(decode)
        assert 1 <= rooms(prefill)[0] < 2**63
        assert not aborted(prefill)
        assert not aborted(decode)


async def test_no_room_is_used_twice() -> None:
    async with engine(completes()) as prefill, engine(completes()) as decode:
        async with pairs(prefill, decode, "sglang") as running:
            for _ in range(20):
                async with running.chat() as answer:
                    assert answer.status == 200
            await running.settled()
        assert len(set(rooms(decode))) == 20
        assert set(rooms(prefill)) == set(rooms(decode))


async def test_neither_side_waits_for_the_other() -> None:
    """Prefill ends only when decode has taken its blocks, and decode answers only after that."""
    met = asyncio.Event()

    async def waits(made: Engine, _: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if len(prefill.chats) == len(decode.chats) == 1:
            met.set()
        await met.wait()
        await completes()(made, _, writer, asked)

    async with engine(waits) as prefill, engine(waits) as decode, pairs(prefill, decode, "sglang") as running:
        async with running.chat() as answer:
            assert answer.status == 200
        await running.settled()


@pytest.mark.parametrize("side", ["prefill", "decode"])
async def test_an_error_ends_both_sides_and_the_pair_meets_again_in_a_new_room(side: str) -> None:
    sick, other = first_then(FAILS, completes()), first_then(hangs(), completes())
    scripts = (sick, other) if side == "prefill" else (other, sick)
    async with engine(scripts[0]) as prefill, engine(scripts[1]) as decode:
        async with pairs(prefill, decode, "sglang") as running:
            async with running.chat({"stream": True}) as answer:
                assert answer.status == 200
                assert b"Hello" in await answer.read()
            waiting = decode if side == "prefill" else prefill
            async with asyncio.timeout(5):
                await waiting.left.wait()
            await until(lambda: aborted(waiting))
            await running.settled()
        assert len(rooms(decode)) == len(set(rooms(decode))) == 2
        assert rooms(prefill) == rooms(decode)
        assert aborted(waiting) == [waiting.chats[0].body["rid"]]
        assert waiting.chats[0].body["rid"] != waiting.chats[1].body["rid"]


async def test_blame_lies_where_the_failure_was() -> None:
    async with engine(FAILS) as prefill, engine(hangs()) as decode:
        async with pairs(prefill, decode, "sglang") as running:
            async with running.chat() as answer:
                assert answer.status == 500
            assert {member.id: member.failures for member in running.app.fleet} == {"p/0": 3, "d/0": 0}
            await running.settled()
        assert len(set(rooms(decode))) == 3


async def test_a_client_that_leaves_ends_both_sides() -> None:
    begun = hangs(STREAM_HEAD, chunk(ROLE), chunk(text("Hel")))
    async with engine(hangs()) as prefill, engine(begun) as decode:
        async with pairs(prefill, decode, "sglang") as running:

            async def ask() -> None:
                async with running.chat({"stream": True}) as answer:
                    await answer.read()

            asking = asyncio.create_task(ask())
            await until(lambda: prefill.chats and decode.chats)
            asking.cancel()
            async with asyncio.timeout(5):
                await prefill.left.wait()
                await decode.left.wait()
            await until(lambda: aborted(prefill) and aborted(decode))
            await running.settled()


async def test_prefill_that_speaks_longest_is_heard_to_its_end() -> None:
    released = asyncio.Event()
    async with engine(after(released, completes())) as prefill, engine(completes()) as decode:
        async with pairs(prefill, decode, "sglang") as running:
            async with running.chat() as answer:
                assert answer.status == 200
            table = running.app.fleet.snapshot().table
            assert sum(table.exchanges) == 1
            released.set()
            await until(lambda: sum(table.exchanges) == 0)
            assert not prefill.left.is_set()
            assert not aborted(prefill)


async def test_what_prefill_says_once_decode_answers_does_not_matter() -> None:
    decoding, failed = asyncio.Event(), asyncio.Event()

    async def decodes(_: Engine, __: asyncio.StreamReader, writer: asyncio.StreamWriter, ___: Asked) -> None:
        writer.write(STREAM_HEAD + chunk(ROLE) + chunk(text("Hel")))
        decoding.set()
        await failed.wait()
        writer.write(chunk(text("lo")) + chunk(finish()) + chunk(DONE) + LAST_CHUNK)

    async def prefills(made: Engine, _: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        await decoding.wait()
        await asyncio.sleep(0.05)
        await FAILS(made, _, writer, asked)
        await writer.drain()
        await asyncio.sleep(0.05)
        failed.set()

    async with engine(prefills) as prefill, engine(decodes) as decode:
        async with pairs(prefill, decode, "sglang") as running:
            async with running.chat({"stream": True}) as answer:
                assert b'"lo"' in await answer.read()
            await running.settled()
            assert len(decode.chats) == 1


async def test_without_a_prefill_replica_there_is_no_answer() -> None:
    async with engine(completes()) as gone:
        dead = gone.url
    async with engine(hangs()) as decode, gateway(paired([dead], [decode.url], "sglang")) as running:
        async with running.chat() as answer:
            assert answer.status in (500, 503)
        await until(lambda: decode.left.is_set() or not decode.chats)
        await running.settled()


async def test_a_prefill_that_was_aborted_is_a_failure() -> None:
    body = b'{"id":"x","choices":[{"index":0,"message":{"content":""},"finish_reason":"abort"}]}'
    script = first_then(says(response(200, body)), completes())
    async with engine(script) as prefill, engine(first_then(hangs(), completes())) as decode:
        async with pairs(prefill, decode, "sglang") as running:
            async with running.chat() as answer:
                assert answer.status == 200
            assert len(set(rooms(decode))) == 2
            await running.settled()
