"""Drives one exchange through a dialect without a gateway."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from gateway.dialects.base import Transcoder
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions, EngineRequest, standard
from gateway.dialects.seal import Keys, Seal, Sealer
from gateway.dialects.target import Target
from tests.conformance.offline import events_of

KEYS = Keys.of_secret("test")
VLLM = Target("vllm", "glm", reasoning_field="reasoning")
SGLANG = Target("sglang", "glm", structured="fields")
HI = {"role": "user", "content": "hi"}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "m", "messages": [HI]},
    "completions": {"model": "m", "prompt": "hi"},
    "responses": {"model": "m", "input": "hi", "store": False},
    "messages": {"model": "m", "max_tokens": 99, "messages": [HI], "thinking": {"type": "adaptive"}},
}


def seal() -> Seal:
    """The tenant's seal; what it makes is the same in every test."""
    return Sealer(KEYS, random.Random(5).randbytes).of("tenant")


def decode(
    dialect: str, fields: dict[str, Any], headers: Mapping[str, str] = MappingProxyType({}), **options: Any
) -> Request:
    body = json.dumps(BODIES[dialect] | fields).encode()
    return standard()[dialect].decode_request(body, headers, DecodeOptions(**({"seal": seal()} | options)))


def encode(dialect: str, fields: dict[str, Any], target: Target = VLLM, **options: Any) -> EngineRequest:
    return standard()[dialect].encode_engine_request(decode(dialect, fields, **options), target)


def sent(dialect: str, fields: dict[str, Any], target: Target = VLLM, **options: Any) -> dict[str, Any]:
    """The engine body."""
    body: dict[str, Any] = json.loads(encode(dialect, fields, target, **options).body)
    return body


def transcoder(dialect: str, fields: dict[str, Any], target: Target = VLLM, ids: Ids | None = None) -> Transcoder:
    request = decode(dialect, fields)
    one = standard()[dialect]
    engine = one.encode_engine_request(request, target)
    ids = ids or Ids.create(dialect, 1_790_000_000, "req_1", random.Random(1))
    return one.transcoder(request, engine, target, ids, seal())


def play(subject: Transcoder, data: bytes, step: int = 1 << 20) -> bytes:
    """Feed all bytes in pieces, then the end."""
    out = b"".join(subject.feed(data[at : at + step]) for at in range(0, len(data), step))
    return out + subject.eof()


def stream(*deltas: dict[str, Any], finish: str | None = "stop", usage: dict[str, Any] | None = None) -> bytes:
    """An engine's event stream: role, deltas, finish, counts, `[DONE]`."""
    return raw_stream(*({"choices": [choice(delta)]} for delta in deltas), finish=finish, usage=usage)


def choice(delta: dict[str, Any], finish: str | None = None, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"index": index, "delta": delta, "logprobs": None, "finish_reason": finish} | more


def raw_stream(*chunks: dict[str, Any], finish: str | None = "stop", usage: dict[str, Any] | None = None) -> bytes:
    """The same from whole chunks."""
    every = [{"choices": [choice({"role": "assistant", "content": ""})]}, *chunks]
    if finish:
        every.append({"choices": [choice({}, finish)]})
        every.append(
            {"choices": [], "usage": usage or {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}}
        )
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "glm"}
    frames = [json.dumps(head | chunk, separators=(",", ":")) for chunk in every]
    return "".join(f"data: {frame}\n\n" for frame in [*frames, *(["[DONE]"] if finish else [])]).encode()


def whole(message: dict[str, Any], finish: str = "stop", **choice_fields: Any) -> bytes:
    """An engine's JSON answer."""
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    entry = {"index": 0, "message": {"role": "assistant"} | message, "finish_reason": finish} | choice_fields
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "glm"}
    return json.dumps(head | {"choices": [entry], "usage": usage}).encode()


def tool(index: int | None, *, id: str | None = None, name: str | None = None, args: Any = None) -> dict[str, Any]:  # noqa: A002
    """A delta with one tool-call fragment."""
    return {"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": args}}]}


def client_events(data: bytes) -> list[tuple[str | None, Any]]:
    return events_of(data.decode())[0]
