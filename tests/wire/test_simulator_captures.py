"""The simulator's answers have the exact shape, and its errors the exact text, of captured engines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.simulator import payloads, runs, shape, simulator

DATA = Path(__file__).parents[1] / "data"
VLLM: dict[str, dict[str, Any]] = json.loads((DATA / "captures" / "vllm_exchanges.json").read_text("utf-8"))
SERVER = {"model": "smollm2-135m", "aliases": ("smol",), "max_model_len": 4096, "block_tokens": 32}
# Captures from servers started in another way, or with an answer of another kind than ours.
STARTED = {
    "auth_missing": {"api_key": "sk-test"},
    "think_chat": {"reasoning": "qwen"},
    "think_chat_unfinished": {"reasoning": "qwen"},
    "think2_chat_stream": {"reasoning": "qwen"},
    "get_kv_event_sources": {"kv_events": 0},
}
EXACT = {"err_image", "reset_prefix_cache", "embeddings_err", "tokenize_v1", "get_version", "get_load", "auth_missing"}
# Where ours differ on purpose: the path inside an error message, the position of a JSON error.
SKIPPED_OVERLOAD = {"overload_503", "overload_503_stream"}


def quiet(value: Any) -> Any:
    """Without what only some servers show: per-request metrics."""
    if isinstance(value, dict):
        return {key: quiet(item) for key, item in value.items() if key != "metrics"}
    return [quiet(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("name", sorted(set(VLLM) - SKIPPED_OVERLOAD - {"err_too_long", "chat_stop"}))
async def test_vllm(name: str) -> None:
    want = VLLM[name]
    async with simulator("vllm", **{**SERVER, **STARTED.get(name, {})}) as sim:
        headers = {"content-type": want["content_type"]} if want["content_type"] else {}
        url = sim.server.url + want["path"]
        async with sim.session.request(
            want["method"],
            url,
            data=(want["body"] or "").encode() or None,
            headers=headers,
            skip_auto_headers=() if headers else ("content-type",),
        ) as response:
            body = await response.read()
            assert response.status == want["status"], body
            for header, value in want["headers"].items():
                if header != "vary":
                    assert response.headers[header] == value
    if "frames" in want:
        expected = [json.loads(frame) if frame.startswith("{") else frame for frame in want["frames"]]
        assert runs([shape(quiet(p)) for p in payloads(body)]) == runs([shape(quiet(p)) for p in expected])
    elif want["status"] >= 400 or name in EXACT:
        assert body.decode() == want["answer"]
    else:
        assert shape(quiet(json.loads(body))) == shape(quiet(json.loads(want["answer"])))


async def test_vllm_too_long() -> None:
    for stream in (False, True):
        async with simulator("vllm", **SERVER) as sim:
            messages = [{"role": "user", "content": "water " * 5000}]
            response = await sim.post("/v1/chat/completions", {"model": "smol", "messages": messages, "stream": stream})
            assert response.status == 400
            assert await response.text() == VLLM["err_too_long"]["answer"]


async def test_vllm_queue_full() -> None:
    for name in sorted(SKIPPED_OVERLOAD):
        async with simulator("vllm", fault="queue_full", **SERVER) as sim:
            response = await sim.post("/v1/chat/completions", json.loads(VLLM[name]["body"]))
            assert (response.status, await response.text()) == (503, VLLM[name]["answer"])
            assert "retry-after" not in response.headers


async def test_vllm_stop_string() -> None:
    async with simulator("vllm", model="sim") as sim:
        whole = (await sim.chat())["choices"][0]["message"]["content"]
        word = whole.split()[5]
        choice = (await sim.chat(stop=[word]))["choices"][0]
        assert choice["message"]["content"] == whole[: whole.index(word)]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", word)


def sglang(name: str) -> list[Any]:
    return payloads((DATA / "streams" / f"sglang_{name}.sse").read_bytes())


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("chat_reasoning", {"max_tokens": 5, "stream_options": {"include_usage": True}}),
        (
            "chat_continuous_usage",
            {
                "max_tokens": 14,
                "stream_options": {"include_usage": True, "continuous_usage_stats": True},
                "return_cached_tokens_details": True,
            },
        ),
    ],
)
async def test_sglang_stream(name: str, fields: dict[str, Any]) -> None:
    async with simulator("sglang", reasoning="glm", block_tokens=8) as sim:
        await sim.stream(max_tokens=1)  # fills the cache
        frames = await sim.stream(**fields)
    assert runs([shape(f) for f in frames]) == runs([shape(f) for f in sglang(name)])


async def test_sglang_tools_stream() -> None:
    tools = [
        {"type": "function", "function": {"name": "get_w", "parameters": {"properties": {"c": {"enum": ["Rome"]}}}}}
    ]
    async with simulator("sglang") as sim:
        frames = await sim.stream(tools=tools, tool_choice="required")
    assert runs([shape(f) for f in frames]) == runs([shape(f) for f in sglang("chat_tools")])


async def test_sglang_completions_stream() -> None:
    async with simulator("sglang") as sim:
        frames = await sim.stream("/v1/completions", max_tokens=3, stream_options={"include_usage": True})
    assert runs([shape(f) for f in frames]) == runs([shape(f) for f in sglang("completions")])


async def test_sglang_queue_full_has_two_faces() -> None:
    body = {"messages": [{"role": "user", "content": "x"}]}
    async with simulator("sglang", fault="queue_full") as sim:
        whole = await sim.post("/v1/chat/completions", body)
        assert whole.status == 503
        assert await whole.text() == (
            '{"object":"error","message":"The request queue is full.","type":"503","param":null,"code":503}'
        )
        stream = await sim.post(
            "/v1/chat/completions", {"messages": [{"role": "user", "content": "x"}], "stream": True}
        )
        assert stream.status == 200
        assert await stream.text() == (
            'data: {"error": {"object": "error", "message": "The request queue is full.", '
            '"type": "SERVICE_UNAVAILABLE", "param": null, "code": 503}}\n\ndata: [DONE]\n\n'
        )


async def test_sglang_lengths() -> None:
    async with simulator("sglang", max_model_len=4096) as sim:
        long = await sim.post("/v1/completions", {"model": "x", "prompt": [300] * 6015})
        assert await long.text() == (
            '{"object":"error","message":"The input (6015 tokens) is longer than the model\'s context length '
            '(4096 tokens).","type":"BadRequestError","param":null,"code":400}'
        )
        both = await sim.post("/v1/completions", {"model": "x", "prompt": [300] * 14, "max_tokens": 5000})
        assert "You requested a total of 5014 tokens: 14 tokens from the input messages and 5000" in await both.text()
