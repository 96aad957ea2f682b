"""vLLM pairs over loopback: prefill first, then decode with what it handed over; failures, disconnects, fall-backs."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.app import gateway
from tests.support.engine import (
    DONE,
    ROLE,
    STREAM_HEAD,
    Answer,
    chunk,
    completes,
    engine,
    hangs,
    response,
    says,
    streams,
    text,
)
from tests.support.pairs import PARAMS, after, first_then, hands_over, paired, pairs

ERROR_FRAME = b'data: {"error":{"message":"Internal server error","type":"x","code":500}}\n\n'


async def test_prefill_gets_one_token_and_decode_its_parameters_untouched() -> None:
    async with engine(hands_over()) as prefill, engine(completes()) as decode, pairs(prefill, decode) as running:
        asked = {"stream": True, "stream_options": {"include_usage": True}, "max_completion_tokens": 9, "seed": 7}
        async with running.chat(asked) as answer:
            assert answer.status == 200
            assert answer.headers["x-gateway-pool"] == "d"
            assert b"Hello" in await answer.read()
        await running.settled()
        (first,), (second,) = prefill.chats, decode.chats
        assert first.body["max_tokens"] == 1
        assert {"stream", "stream_options", "max_completion_tokens"}.isdisjoint(first.body)
        assert first.body["kv_transfer_params"]["do_remote_decode"] is True
        assert first.body["messages"] == second.body["messages"]
        assert first.body["seed"] == second.body["seed"] == 7
        assert second.body["kv_transfer_params"] == {**PARAMS, "remote_request_id": "chatcmpl-1"}
        assert second.body["stream"] is True
        assert second.body["max_completion_tokens"] == 9


async def test_each_exchange_has_parameters_of_its_own() -> None:
    async with engine(hands_over()) as prefill, engine(completes()) as decode, pairs(prefill, decode) as running:
        for _ in range(3):
            async with running.chat() as answer:
                assert answer.status == 200
        ids = [asked.body["kv_transfer_params"]["remote_request_id"] for asked in decode.chats]
        assert ids == ["chatcmpl-1", "chatcmpl-2", "chatcmpl-3"]
        await running.settled()


@pytest.mark.parametrize(
    "failing",
    [
        says(response(500, {"error": {"message": "boom", "code": 500}})),
        streams(ERROR_FRAME, DONE),
        says(STREAM_HEAD + chunk(ROLE), hang_up=True),
    ],
    ids=["500", "error frame", "reset before the first word"],
)
async def test_when_decode_fails_another_pair_gets_a_new_prefill(failing: Answer) -> None:
    async with engine(hands_over()) as one, engine(hands_over()) as other, engine(failing) as bad:
        async with engine(completes()) as good:
            config = paired([one.url, other.url], [bad.url, good.url])
            async with gateway(config) as running:
                for _ in range(6):
                    async with running.chat({"stream": True}) as answer:
                        assert answer.status == 200
                        assert b"Hello" in await answer.read()
                await running.settled()
            used = [
                (json.dumps(asked.body["kv_transfer_params"]), side.url)
                for side in (bad, good)
                for asked in side.chats
                if "kv_transfer_params" in asked.body
            ]
            assert bad.chats
            assert len(good.chats) == 6
            assert len(used) == len(one.chats) + len(other.chats)  # none was used twice


async def test_a_lone_pair_that_failed_goes_on_without_a_partner() -> None:
    failing = first_then(says(response(500, {"error": {"message": "no peer", "code": 500}})), completes())
    async with engine(hands_over()) as prefill, engine(failing) as decode, pairs(prefill, decode) as running:
        async with running.chat() as answer:
            assert answer.status == 200
        await running.settled()
        assert len(prefill.chats) == 1
        assert ["kv_transfer_params" in asked.body for asked in decode.chats] == [True, False]


@pytest.mark.parametrize(
    "failing",
    [
        says(response(500, {"error": {"message": "boom", "code": 500}})),
        says(hang_up=True),
        hands_over({"choices": [], "kv_transfer_params": None}),
        says(response(200, b"not json")),
    ],
    ids=["500", "reset", "nothing handed over", "garbage"],
)
async def test_when_prefill_fails_decode_does_it_all(failing: Answer) -> None:
    async with engine(failing) as prefill, engine(completes()) as decode, pairs(prefill, decode) as running:
        async with running.chat({"stream": True}) as answer:
            assert answer.status == 200
            assert b"Hello" in await answer.read()
        await running.settled()
        assert len(prefill.chats) == 1
        assert ["kv_transfer_params" in asked.body for asked in decode.chats] == [False]
        blamed = {member.id: member.failures for member in running.app.fleet}
        assert blamed == {"p/0": 1, "d/0": 0}


async def test_a_request_at_fault_is_told_by_prefill_and_not_retried() -> None:
    refuses = says(response(400, {"error": {"message": "temperature is odd", "param": "temperature", "code": 400}}))
    async with engine(refuses) as prefill, engine(completes()) as decode, pairs(prefill, decode) as running:
        async with running.chat() as answer:
            assert answer.status == 400
            assert (await answer.json())["error"]["param"] == "temperature"
        assert not decode.chats
        await running.settled()


async def test_an_answer_that_has_begun_is_not_begun_again() -> None:
    breaks = streams(ROLE, text("Hel"), end=b"", hang_up=True)
    async with engine(hands_over()) as prefill, engine(breaks) as decode, pairs(prefill, decode) as running:
        async with running.chat({"stream": True}) as answer:
            assert b"error" in await answer.read()
        await running.settled()
        assert len(prefill.chats) == len(decode.chats) == 1


async def test_a_client_that_leaves_ends_the_prefill() -> None:
    async with engine(hangs()) as prefill, engine(completes()) as decode, pairs(prefill, decode) as running:
        asking = asyncio.create_task(_read(running))
        async with asyncio.timeout(5):
            while not prefill.chats:
                await asyncio.sleep(0.005)
            asking.cancel()
            await prefill.left.wait()
        assert not decode.chats
        await running.settled()


async def test_a_client_that_leaves_ends_the_decoding() -> None:
    begun = hangs(STREAM_HEAD, chunk(ROLE), chunk(text("Hel")))
    async with engine(hands_over()) as prefill, engine(begun) as decode, pairs(prefill, decode) as running:
        asking = asyncio.create_task(_read(running))
        async with asyncio.timeout(5):
            while not decode.chats:
                await asyncio.sleep(0.005)
            asking.cancel()
            await decode.left.wait()
        await running.settled()


async def _read(running: Any) -> None:
    async with running.chat({"stream": True}) as answer:
        await answer.read()


async def test_work_is_counted_where_it_is_done() -> None:
    prefilled, decoded = asyncio.Event(), asyncio.Event()
    async with engine(after(prefilled, hands_over())) as prefill, engine(after(decoded, completes())) as decode:
        async with pairs(prefill, decode) as running:
            asking = asyncio.create_task(_read(running))
            async with asyncio.timeout(5):
                while not prefill.chats:
                    await asyncio.sleep(0.005)
                table, rows = _table(running)
                assert table.prefill_tokens[rows["p/0"]] > 0
                assert table.prefill_tokens[rows["d/0"]] == 0
                assert table.context_tokens[rows["d/0"]] > 0
                member = next(member for member in running.app.fleet if member.id == "p/0")
                seen_s = member.progress_s
                prefilled.set()
                while not decode.chats:
                    await asyncio.sleep(0.005)
                assert member.progress_s > seen_s  # or a busy prefill replica would look silent
                assert table.exchanges[rows["p/0"]] == table.prefill_tokens[rows["p/0"]] == 0
                decoded.set()
                await asking
            await running.settled()


def _table(running: Any) -> tuple[Any, dict[str, int]]:
    snapshot = running.app.fleet.snapshot()
    return snapshot.table, {replica.id: replica.row for replica in snapshot.replicas}


async def test_silence_while_prefilling_is_filled_with_heartbeats() -> None:
    prefilled = asyncio.Event()
    async with engine(after(prefilled, hands_over())) as prefill, engine(completes()) as decode:
        async with pairs(prefill, decode, listen={"heartbeat_after_s": 0.1}) as running:
            async with running.chat({"stream": True}) as answer:
                assert (await answer.content.readline()).startswith(b":")
                prefilled.set()
                assert b"Hello" in await answer.read()
            await running.settled()


@pytest.mark.parametrize(
    "more", [{"n": 2}, {"prompt_logprobs": 1}, {"echo": True}], ids=["choices", "prompt logprobs", "echo"]
)
async def test_what_cannot_be_divided_is_decoded_alone(more: dict[str, Any]) -> None:
    async with engine(hands_over()) as prefill, engine(completes()) as decode, pairs(prefill, decode) as running:
        async with running.chat(more) as answer:
            assert answer.status == 200
        assert not prefill.chats
        assert "kv_transfer_params" not in decode.chats[0].body
        await running.settled()


KEY = "hr-pair-0123456789abcdef"


async def test_a_clients_own_parameters_never_get_through() -> None:
    tenant = {
        "name": "t",
        "keys": [{"id": "k", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}],
        "grants": ["kv_transfer_params", "bootstrap_room", "vllm_xargs"],
    }
    evil = {
        "kv_transfer_params": {"do_remote_prefill": True},
        "bootstrap_room": 5,
        "vllm_xargs": {"kv_transfer_params": "x", "kept": 1},
    }
    more: dict[str, Any] = {"auth": {"mode": "keys"}, "tenants": [tenant]}
    headers = {"authorization": f"Bearer {KEY}"}
    async with engine(hands_over()) as prefill, engine(completes()) as decode:
        async with pairs(prefill, decode, **more) as running:
            for body in (evil, {**evil, "n": 2}):
                async with running.chat(body, headers=headers) as answer:
                    assert answer.status == 200
            await running.settled()
        for asked in (*prefill.chats, *decode.chats):
            assert "bootstrap_room" not in asked.body
            assert asked.body.get("kv_transfer_params") != {"do_remote_prefill": True}
            assert asked.body["vllm_xargs"] == {"kept": 1}
        assert ["kv_transfer_params" in asked.body for asked in decode.chats] == [True, False]


async def test_no_prefill_replica_is_ready() -> None:
    async with engine(completes()) as gone:
        dead = gone.url
    async with engine(completes()) as decode, gateway(paired([dead], [decode.url])) as running:
        async with running.chat() as answer:
            assert answer.status == 200
        assert len(decode.chats) == 1
        await running.settled()


@pytest.mark.parametrize("routing", ["latency", "round_robin", "least_load", "consistent_hash", "prefix_text"])
async def test_every_policy_makes_pairs(routing: str) -> None:
    async with engine(hands_over()) as prefill, engine(completes()) as decode:
        async with pairs(prefill, decode, model={"routing": routing}) as running:
            async with running.chat() as answer:
                assert answer.status == 200
            assert len(prefill.chats) == len(decode.chats) == 1
            await running.settled()


async def test_pools_that_turn_out_unlike_are_no_pair() -> None:
    async with engine(hands_over()) as prefill, engine(completes()) as decode, pairs(prefill, decode) as running:
        book = running.app.book
        for pool, kv_dtype in (("p", "bf16"), ("d", "fp8")):
            known = book.contracts[pool]
            book._learned(replace(known, terms=replace(known.terms, kv_dtype=kv_dtype)))
        async with running.chat() as answer:
            assert answer.status == 200
        assert not prefill.chats
        assert len(decode.chats) == 1
        await running.settled()
