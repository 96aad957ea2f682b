"""The simulated server: what clients can ask of it, and what tests can."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import pytest

from tests.support.simulator import HELLO, JSON, payloads, simulator, text_of

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "parameters": {"type": "object", "properties": {"city": {"enum": ["Paris"]}}, "required": ["city"]},
        },
    }
]


async def until(check: Any, seconds: float = 5.0) -> None:
    """Poll until `await check()` holds."""
    async with asyncio.timeout(seconds):
        while not await check():
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "nim"])
async def test_a_stream_says_what_the_whole_answer_says(engine: str) -> None:
    async with simulator(engine) as sim:
        whole = (await sim.chat(max_tokens=30))["choices"][0]["message"]["content"]
        assert whole
        assert text_of(await sim.stream(max_tokens=30)) == whole


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_equal_seeds_give_equal_servers(engine: str) -> None:
    answers = []
    for seed in (1, 1, 2):
        async with simulator(engine, seed=seed) as sim:
            answer = await sim.chat()
            answers.append((answer["id"], answer["choices"]))
    assert answers[0] == answers[1]
    assert answers[0] != answers[2]


@pytest.mark.parametrize("path", ["/tokenize", "/v1/chat/completions"])
@pytest.mark.parametrize("odd", [{"tools": True}, {"stop": 3}, {"response_format": 1.5}, {"reasoning": "x"}])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_fields_of_the_wrong_type_are_refused(engine: str, odd: dict[str, object], path: str) -> None:
    async with simulator(engine) as sim:
        assert (await sim.post(path, {"model": "sim", "messages": HELLO, **odd})).status == 400


async def test_prompt_tokens_are_those_of_tokenize() -> None:
    async with simulator("vllm") as sim:
        counted = await (await sim.post("/tokenize", {"model": "sim", "messages": HELLO})).json()
        answer = await sim.chat(return_token_ids=True)
        assert answer["prompt_token_ids"] == counted["tokens"]
        assert answer["usage"]["prompt_tokens"] == counted["count"]
        back = await (await sim.post("/detokenize", {"tokens": counted["tokens"]})).json()
        assert HELLO[0]["content"] in back["prompt"]
        ids = answer["choices"][0]["token_ids"]
        again = await (await sim.post("/v1/completions", {"model": "sim", "prompt": counted["tokens"]})).json()
        assert again["usage"]["prompt_tokens"] == counted["count"]
        assert len(ids) == answer["usage"]["completion_tokens"]


@pytest.mark.parametrize(("engine", "field"), [("vllm", "reasoning"), ("sglang", "reasoning_content")])
async def test_effort_low_high_and_max_are_real_and_all_else_is_max(engine: str, field: str) -> None:
    async with simulator(engine, reasoning="glm") as sim:
        counts = {}
        for effort in ("low", "high", "max", "medium"):
            answer = await sim.chat(reasoning_effort=effort)
            counts[effort] = len(answer["choices"][0]["message"][field].split())
            frames = await sim.stream(reasoning_effort=effort)
            assert len(text_of(frames, field).split()) == counts[effort]
        assert counts["low"] < counts["high"] < counts["max"] == counts["medium"]


async def test_stop_strings_match_inside_reasoning() -> None:
    async with simulator("sglang", reasoning="glm") as sim:
        thought = (await sim.chat())["choices"][0]["message"]["reasoning_content"]
        word = thought.split()[3]
        choice = (await sim.chat(stop=word))["choices"][0]
        assert choice["message"]["reasoning_content"] == thought[: thought.index(word)]
        assert choice["message"]["content"] == ""
        assert (choice["finish_reason"], choice["matched_stop"]) == ("stop", word)


@pytest.mark.parametrize(
    ("choice", "vllm", "sglang"),
    [
        ("required", "tool_calls", "tool_calls"),
        ({"type": "function", "function": {"name": "get_weather"}}, "stop", "tool_calls"),
    ],
)
async def test_forced_tool_calls(choice: Any, vllm: str, sglang: str) -> None:
    for engine, reason in (("vllm", vllm), ("sglang", sglang)):
        async with simulator(engine) as sim:
            answer = (await sim.chat(tools=TOOLS, tool_choice=choice))["choices"][0]
            assert answer["finish_reason"] == reason
            function = answer["message"]["tool_calls"][0]["function"]
            assert (function["name"], json.loads(function["arguments"])) == ("get_weather", {"city": "Paris"})
            frames = await sim.stream(tools=TOOLS, tool_choice=choice)
            deltas = [
                c["delta"]["tool_calls"][0] for f in frames[:-1] for c in f["choices"] if "tool_calls" in c["delta"]
            ]
            assert "".join(d["function"].get("arguments") or "" for d in deltas) == function["arguments"]
            assert sum(bool(d.get("id")) for d in deltas) == 1


async def test_a_free_choice_calls_a_tool_when_the_prompt_says_so() -> None:
    async with simulator("vllm") as sim:
        messages = [{"role": "user", "content": 'Please call:get_weather{"city": "Rome"}'}]
        answer = (await sim.chat(messages=messages, tools=TOOLS))["choices"][0]
        assert answer["message"]["tool_calls"][0]["function"]["arguments"] == '{"city": "Rome"}'
        assert (await sim.chat(tools=TOOLS))["choices"][0]["finish_reason"] != "tool_calls"


async def test_json_schema_answers_fit_the_schema() -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    async with simulator("sglang") as sim:
        shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
        content = (await sim.chat(response_format=shape))["choices"][0]["message"]["content"]
        assert json.loads(content) == {"n": 1}


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_several_choices_and_prompts(engine: str) -> None:
    async with simulator(engine) as sim:
        answer = await sim.chat(n=2, max_tokens=6)
        assert [c["index"] for c in answer["choices"]] == [0, 1]
        assert answer["usage"]["completion_tokens"] == 12
        frames = await sim.stream(n=2, max_tokens=6)
        assert {c["index"] for f in frames[:-1] for c in f["choices"]} == {0, 1}
        body = {"model": "sim", "prompt": ["the river", "the dam"], "max_tokens": 2, "n": 2}
        both = await (await sim.post("/v1/completions", body)).json()
        assert len(both["choices"]) == 4


async def test_echo_and_default_length_of_completions() -> None:
    async with simulator("vllm") as sim:
        body = {"model": "sim", "prompt": "the river runs", "echo": True, "ignore_eos": True}
        answer = await (await sim.post("/v1/completions", body)).json()
        assert answer["choices"][0]["text"].startswith("the river runs")
        assert answer["usage"]["completion_tokens"] == 16


async def test_cached_tokens_show_in_usage_and_by_tier() -> None:
    messages = [{"role": "user", "content": "water " * 400}]
    async with simulator("sglang") as sim:
        cold = await sim.chat(messages=messages)
        warm = await sim.chat(messages=messages, return_cached_tokens_details=True)
        assert cold["usage"]["prompt_tokens_details"] == {"cached_tokens": 0}
        cached = warm["usage"]["prompt_tokens_details"]["cached_tokens"]
        assert cached >= 384
        assert warm["sglext"]["cached_tokens_details"] == {"device": cached, "host": 0}
        salted = await sim.chat(messages=messages, cache_salt="tenant")
        assert salted["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
        assert (await sim.post("/flush_cache", {})).status == 200
        flushed = await sim.chat(messages=messages)
        assert flushed["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    async with simulator("sglang", report_cached=False) as sim:
        assert (await sim.chat())["usage"]["prompt_tokens_details"] is None


async def test_disconnect_frees_the_engine() -> None:
    for stream in (True, False):
        async with simulator("vllm", profile="h200", tiers=False) as sim:
            body = json.dumps(
                {"model": "sim", "messages": HELLO, "ignore_eos": True, "max_tokens": 50_000, "stream": stream}
            )
            request = asyncio.create_task(
                sim.session.post(sim.server.url + "/v1/chat/completions", data=body, headers=JSON)
            )

            async def running(sim: Any = sim) -> bool:
                return bool((await sim.state())["running"])

            await until(running)
            if stream:
                (await request).close()
            else:
                request.cancel()

            async def free(sim: Any = sim) -> bool:
                state = await sim.state()
                return not (state["running"] or state["waiting"] or state["used_tokens"] or state["in_flight"])

            await until(free)
            assert (await sim.state())["counters"]["finished_abort"] == 0


async def test_abort_request_ends_with_its_own_finish_reason() -> None:
    async with simulator("sglang", profile="h200", tiers=False) as sim:
        answer = asyncio.create_task(sim.stream(rid="mine-1", ignore_eos=True, max_tokens=50_000))

        async def running() -> bool:
            return bool((await sim.state())["running"])

        await until(running)
        assert (await sim.post("/v1/chat/completions", {"messages": HELLO, "rid": "mine-1"})).status == 400
        assert (await sim.post("/abort_request", {"rid": "unknown"})).status == 200
        assert (await sim.post("/abort_request", {"rid": "mine"})).status == 200
        frames = await answer
        assert frames[-2]["choices"][0]["finish_reason"] == "abort"
        assert frames[0]["id"] == "mine-1"
        assert (await sim.state())["counters"]["finished_abort"] == 1


async def test_queue_limit() -> None:
    async with simulator("sglang", profile="h200", tiers=False, max_queued=0) as sim:
        assert (await sim.post("/v1/chat/completions", {"messages": HELLO})).status == 503


async def test_scripts_and_what_was_asked() -> None:
    async with simulator("vllm") as sim:
        steps = [
            {"sse": ['{"a":1}', "[DONE]"]},
            {"status": 418, "json": {"teapot": True}, "headers": {"retry-after": "7"}},
            {"raw": "data: exactly\n\n", "headers": {"content-type": "text/event-stream"}},
        ]
        assert await (await sim.post("/sim/script", steps)).json() == {"steps": 3}
        first = await sim.post("/v1/chat/completions", {"messages": HELLO}, **{"x-request-id": "r-1"})
        assert await first.text() == 'data: {"a":1}\n\ndata: [DONE]\n\n'
        second = await sim.post("/v1/completions", {"prompt": "x"})
        assert (second.status, second.headers["retry-after"], await second.json()) == (418, "7", {"teapot": True})
        assert await (await sim.post("/v1/chat/completions", b"{}")).text() == "data: exactly\n\n"
        asked = await sim.get("/sim/requests")
        assert [entry["path"] for entry in asked] == ["/v1/chat/completions", "/v1/completions", "/v1/chat/completions"]
        assert asked[0]["body"] == {"messages": HELLO}
        assert asked[0]["headers"]["x-request-id"] == "r-1"
        wrong = await sim.post("/sim/script", [{"nonsense": 1}])
        assert wrong.status == 400
        assert "nonsense" in (await wrong.json())["error"]
        assert (await sim.post("/v1/chat/completions", {"messages": HELLO})).status == 200


async def test_x_request_id() -> None:
    async with simulator("vllm", request_id_headers=True) as sim:
        response = await sim.post("/v1/chat/completions", {"messages": HELLO}, **{"X-Request-Id": "gw-1"})
        assert response.headers["x-request-id"] == "gw-1"
        assert (await response.json())["id"] == "chatcmpl-gw-1"
    async with simulator("vllm") as sim:
        response = await sim.post("/v1/chat/completions", {"messages": HELLO, "request_id": "b"})
        assert "x-request-id" not in response.headers
        assert (await response.json())["id"] == "chatcmpl-b"


async def test_model_names() -> None:
    async with simulator("sglang") as sim:
        answer = await (await sim.post("/v1/chat/completions", {"model": "whatever", "messages": HELLO})).json()
        assert answer["model"] == "whatever"


@pytest.mark.parametrize(
    ("engine", "paths"),
    [
        ("vllm", ["/health", "/v1/models", "/version", "/load", "/metrics", "/server_info", "/openapi.json"]),
        ("sglang", ["/ready", "/v1/models", "/server_info", "/model_info", "/v1/loads", "/metrics", "/openapi.json"]),
        ("nim", ["/v1/health/ready", "/v1/models", "/v1/metadata", "/v1/metrics", "/openapi.json"]),
    ],
)
async def test_what_a_server_says_of_itself(engine: str, paths: list[str]) -> None:
    async with simulator(engine) as sim:
        await sim.chat()
        for path in paths:
            async with sim.session.get(sim.server.url + path) as response:
                assert response.status == 200, path
        for path in ("/v1/embeddings", "/nope"):
            refused = await sim.post(path, {"input": "x"})
            assert (refused.status, await refused.text()) == (404, '{"detail":"Not Found"}')


async def test_metrics_and_loads_count() -> None:
    async with simulator("vllm") as sim:
        usage = (await sim.chat())["usage"]
        text = await sim.get("/metrics")
        assert f'vllm:prompt_tokens_total{{engine="0",model_name="sim"}} {usage["prompt_tokens"]}.0' in text
    async with simulator("sglang") as sim:
        await sim.chat()
        load = (await sim.get("/v1/loads"))["loads"][0]
        assert (load["num_running_reqs"], load["max_total_num_tokens"]) == (0, 4194304)


async def test_embeddings_and_rerank_when_enabled() -> None:
    async with simulator("vllm", embeddings=True) as sim:
        vectors = (await (await sim.post("/v1/embeddings", {"input": ["dam", "dam", "river"]})).json())["data"]
        assert vectors[0]["embedding"] == vectors[1]["embedding"] != vectors[2]["embedding"]
        body = {"query": "cold water", "documents": ["steel grid", "cold water"]}
        ranked = (await (await sim.post("/v1/rerank", body)).json())["results"]
        assert [entry["index"] for entry in ranked] == [1, 0]


async def test_images_are_refused_unless_enabled() -> None:
    messages = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]
    async with simulator("vllm") as sim:
        assert (await sim.post("/v1/chat/completions", {"messages": messages})).status == 400
    async with simulator("vllm", images=True) as sim:
        assert (await sim.chat(messages=messages))["usage"]["prompt_tokens"] > 100


async def test_a_draining_sglang_is_not_ready_but_answers() -> None:
    async with simulator("sglang") as sim:
        sim.server.endpoints.draining = True
        async with sim.session.get(sim.server.url + "/ready") as response:
            assert response.status == 503
        assert (await sim.chat())["choices"]


async def test_simulated_time_runs_faster() -> None:
    async with simulator("vllm", profile="h200", time_scale=1000) as sim:
        answer = await sim.chat(max_tokens=200, ignore_eos=True)
        assert answer["usage"]["completion_tokens"] == 200
        counters = (await sim.state())["counters"]
        assert counters["ttft_s"] > 0.01
        assert counters["decode_s"] > 0.9


async def test_many_at_once_leave_nothing_behind() -> None:
    async with simulator("vllm", profile="h200", time_scale=200) as sim:
        answers = await asyncio.gather(*(sim.stream(max_tokens=20) for _ in range(100)))
        assert all(frames[-1] == "[DONE]" for frames in answers)
        state = await sim.state()
        assert (state["running"], state["waiting"], state["used_tokens"], state["in_flight"]) == (0, 0, 0, 0)


async def test_connection_stays_usable_after_an_early_refusal() -> None:
    async with simulator("vllm") as sim, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=1)) as one:
        for _ in range(3):
            async with one.post(sim.server.url + "/v1/chat/completions", data=b"{", headers=JSON) as response:
                assert response.status == 400
                assert payloads(await response.read()) == []


async def test_large_bodies_and_headers() -> None:
    async with simulator("vllm") as sim:
        body = {"model": "sim", "messages": HELLO, "metadata": "x" * 3_000_000}
        response = await sim.post("/v1/chat/completions", body, **{"x-long": "y" * 20_000})
        assert response.status == 200


async def test_a_taken_port_is_an_error_and_leaves_nothing() -> None:
    async with simulator("vllm") as sim:
        port = int(sim.server.url.rsplit(":", 1)[1])
        with pytest.raises(OSError, match="in use"):
            async with simulator("vllm", port=port, kv_events=0):
                pass
