"""What the simulator's tests share: a running server, and the shape of JSON."""

from __future__ import annotations

import io
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import aiohttp

from backends.simulator.options import SimOptions
from backends.simulator.server import Simulator, start

JSON = {"content-type": "application/json"}
HELLO = [{"role": "user", "content": "Hello, what is a headrace?"}]


@dataclass
class Sim:
    """A simulator and a session with it."""

    server: Simulator
    session: aiohttp.ClientSession

    async def post(self, path: str, body: Any, **headers: str) -> aiohttp.ClientResponse:
        data = io.BytesIO(body if isinstance(body, bytes) else json.dumps(body).encode())
        response = await self.session.post(self.server.url + path, data=data, headers={**JSON, **headers})
        await response.read()
        return response

    async def get(self, path: str) -> Any:
        async with self.session.get(self.server.url + path) as response:
            text = await response.text()
            return json.loads(text) if "json" in response.content_type else text

    async def chat(self, **fields: Any) -> Any:
        """The JSON of a chat answer that is not streamed."""
        response = await self.post("/v1/chat/completions", {"model": "sim", "messages": HELLO, **fields})
        return await response.json()

    async def stream(self, path: str = "/v1/chat/completions", **fields: Any) -> list[Any]:
        """The payloads of a stream, JSON where they are JSON."""
        head = {"model": "sim", "stream": True}
        body = {**head, **({"messages": HELLO} if "chat" in path else {"prompt": "the river"}), **fields}
        return payloads(await (await self.post(path, body)).read())

    async def state(self) -> Any:
        return await self.get("/sim/state")


@asynccontextmanager
async def simulator(engine: Any = "vllm", **fields: Any) -> AsyncIterator[Sim]:
    """A server on a free port of loopback."""
    server = await start(SimOptions(engine=engine, **fields))
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
        try:
            yield Sim(server, session)
        finally:
            await server.stop()


def payloads(body: bytes) -> list[Any]:
    """`data:` payloads of an event stream."""
    out: list[Any] = []
    for event in body.decode().split("\n\n"):
        if event.startswith("data: "):
            text = event.removeprefix("data: ")
            out.append(json.loads(text) if text.startswith("{") else text)
    return out


def shape(value: Any) -> Any:
    """Keys in order, and types; lists by their first item."""
    if isinstance(value, dict):
        return [(key, shape(item)) for key, item in value.items()]
    if isinstance(value, list):
        return [shape(item) for item in value[:1]]
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def runs(shapes: list[Any]) -> list[Any]:
    """Consecutive equal items once."""
    return [item for at, item in enumerate(shapes) if at == 0 or item != shapes[at - 1]]


def text_of(frames: list[Any], field: str = "content") -> str:
    """All text of one field of a chat stream."""
    deltas = [choice["delta"] for frame in frames if isinstance(frame, dict) for choice in frame.get("choices", ())]
    return "".join(delta.get(field) or "" for delta in deltas)
