"""Scripted prefill and decode engines, and a gateway over pools of them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from gateway.config.model import Config
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import COMPLETION, Answer, Asked, Engine, response

PARAMS = {"do_remote_prefill": True, "do_remote_decode": False, "remote_engine_id": "e", "remote_block_ids": [[1, 2]]}


def hands_over(answer: dict[str, Any] | None = None) -> Answer:
    """vLLM's prefill side: each answer carries parameters of its own."""

    async def script(made: Engine, _: asyncio.StreamReader, writer: asyncio.StreamWriter, __: Asked) -> None:
        params = {**PARAMS, "remote_request_id": f"chatcmpl-{len(made.chats)}"}
        writer.write(response(200, {**COMPLETION, "kv_transfer_params": params} if answer is None else answer))

    return script


def after(event: asyncio.Event, answer: Answer) -> Answer:
    """The same answer once `event` is set."""

    async def script(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        await event.wait()
        await answer(made, reader, writer, asked)

    return script


def first_then(first: Answer, then: Answer) -> Answer:
    """`first` for the first request and `then` for all that follow."""

    async def script(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        await (first if len(made.chats) == 1 else then)(made, reader, writer, asked)

    return script


def paired(prefill: Sequence[str], decode: Sequence[str], engine: str = "vllm", **more: Any) -> Config:
    """One model over a decode pool `d` whose prompts are computed by the pool `p`."""
    pools = [
        pool_of(*prefill, name="p", engine=engine),
        pool_of(*decode, name="d", engine=engine, prefill={"pool": "p", "bootstrap_port": 8901}),
    ]
    model = {"name": "glm", "pools": ["d"], "routing": "p2c", **more.pop("model", {})}
    return config_of(pools, models=[model], **more)


@asynccontextmanager
async def pairs(prefill: Engine, decode: Engine, engine: str = "vllm", **more: Any) -> AsyncIterator[Running]:
    """A gateway over one pair."""
    async with gateway(paired([prefill.url], [decode.url], engine, **more)) as running:
        yield running
