"""A scripted engine: answers Chat with exact bytes and remembers what it was asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from tests.support.raw_server import raw_server, read_request


@dataclass
class Asked:
    """One request as the engine got it."""

    path: str
    headers: Mapping[str, str]
    body: dict[str, Any]


Answer = Callable[["Engine", asyncio.StreamReader, asyncio.StreamWriter, Asked], Awaitable[None]]


@dataclass
class Engine:
    """What the test sees of the engine."""

    url: str = ""
    asked: list[Asked] = field(default_factory=list)
    left: asyncio.Event = field(default_factory=asyncio.Event)  # a client went away during an answer
    left_at: float = 0.0
    written: int = 0  # payload bytes that the engine got rid of

    @property
    def chats(self) -> list[Asked]:
        """Requests other than probes."""
        return [asked for asked in self.asked if asked.path.startswith("/v1/chat")]


@asynccontextmanager
async def engine(answer: Answer) -> AsyncIterator[Engine]:
    """Serve `answer` for every generation; health and model list are always fine."""
    made = Engine()

    async def script(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            asked = _parse(await read_request(reader))
            made.asked.append(asked)
            if asked.path.endswith("/v1/models"):
                writer.write(response(200, {"object": "list", "data": [{"id": "glm"}]}))
            elif "/v1/" in asked.path or asked.path.endswith("tokenize"):
                await answer(made, reader, writer, asked)
            else:
                writer.write(response(200, {}))
            await writer.drain()

    async with raw_server(script) as url:
        made.url = url
        yield made


def _parse(request: bytes) -> Asked:
    head, _, body = request.partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    return Asked(lines[0].split()[1], headers, json.loads(body) if body else {})


def response(status: int, body: Any, *, content_type: str = "application/json") -> bytes:
    """A complete HTTP answer."""
    payload = body if isinstance(body, bytes) else json.dumps(body).encode()
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(payload)}\r\n\r\n"
    return head.encode() + payload


STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
LAST_CHUNK = b"0\r\n\r\n"


def chunk(payload: bytes) -> bytes:
    """One chunk of the transfer coding."""
    return b"%x\r\n%b\r\n" % (len(payload), payload)


def event(**choice: Any) -> bytes:
    """A Chat chunk as vLLM writes it, framed as SSE."""
    delta = {"index": 0, "delta": choice.get("delta", {}), "logprobs": None, "finish_reason": choice.get("finish")}
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "glm", "choices": [delta]}
    return b"data: " + json.dumps(frame, separators=(",", ":")).encode() + b"\n\n"


ROLE = event(delta={"role": "assistant", "content": ""})
DONE = b"data: [DONE]\n\n"


def text(words: str) -> bytes:
    """A content delta."""
    return event(delta={"content": words})


def finish(reason: str = "stop") -> bytes:
    """The finish chunk."""
    return event(finish=reason)


COMPLETION = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 1,
    "model": "glm",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
}


def says(*pieces: bytes, pause_s: float = 0.0, hang_up: bool = False) -> Answer:
    """Write these bytes, then hang up or keep the connection."""

    async def answer(_: Engine, __: asyncio.StreamReader, writer: asyncio.StreamWriter, ___: Asked) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(pause_s)
        if hang_up:
            raise ConnectionResetError

    return answer


def streams(*events: bytes, pause_s: float = 0.0, end: bytes = LAST_CHUNK, hang_up: bool = False) -> Answer:
    """Stream these events; `end` b"" leaves the body open."""
    pieces = [STREAM_HEAD, *(chunk(e) for e in events), *([end] if end else [])]
    return says(*pieces, pause_s=pause_s, hang_up=hang_up)


def completes() -> Answer:
    """Answer whole or streamed, as asked."""
    whole = says(response(200, COMPLETION))
    streamed = streams(ROLE, text("Hello"), finish(), DONE)

    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        await (streamed if asked.body.get("stream") else whole)(made, reader, writer, asked)

    return answer


def hangs(*first: bytes) -> Answer:
    """Write these bytes, then wait until the client leaves."""

    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Asked) -> None:
        for piece in first:
            writer.write(piece)
        await reader.read()
        made.left_at = asyncio.get_running_loop().time()
        made.left.set()

    return answer
