"""Nothing is dropped silently: what has no effect is named in a header, and what is wrong in an error."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.telemetry.hub import Telemetry
from tests.conformance.check_messages import validate_error_body
from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import Engine, completes, engine

HI = {"role": "user", "content": "hi"}
PATHS = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "responses": "/v1/responses",
    "messages": "/v1/messages",
}
BODIES: dict[str, dict[str, Any]] = {
    "chat": {"model": "glm", "messages": [HI]},
    "completions": {"model": "glm", "prompt": "hi"},
    "responses": {"model": "glm", "input": "hi"},
    "messages": {"model": "glm", "max_tokens": 9, "messages": [HI]},
}
SCHEMA = {"type": "object", "properties": {}}
FUNCTION = {"type": "function", "name": "f", "parameters": SCHEMA}

# Fields without effect, as the header names them. Each dialect: one that nobody knows, known ones, and nested ones.
IGNORED: list[tuple[str, dict[str, Any], list[str]]] = [
    *((dialect, {"brand_new": {"a": 1}}, ["brand_new"]) for dialect in PATHS),
    *((dialect, {"x": 1, "y": None}, ["x", "y"]) for dialect in PATHS),
    *((dialect, {"priority": 1, "kv_transfer_params": {}}, ["kv_transfer_params", "priority"]) for dialect in PATHS),
    ("chat", {"verbosity": "low"}, ["verbosity"]),
    ("chat", {"prediction": {"type": "content", "content": "x"}}, ["prediction"]),
    ("chat", {"web_search_options": {}}, ["web_search_options"]),
    ("chat", {"moderation": True, "audio": {"voice": "x"}}, ["moderation", "audio"]),
    ("chat", {"reasoning": {"effort": "low", "exclude": True}}, ["reasoning.exclude"]),
    (
        "chat",
        {"stream": True, "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        ["stream_options.continuous_usage_stats"],
    ),
    ("completions", {"verbosity": "low"}, ["verbosity"]),
    ("responses", {"truncation": "auto"}, ["truncation"]),
    ("responses", {"max_tool_calls": 3}, ["max_tool_calls"]),
    ("responses", {"text": {"verbosity": "low", "style": 1}}, ["text.verbosity", "text.style"]),
    ("responses", {"include": ["file_search_call.results"]}, ["include.file_search_call.results"]),
    ("responses", {"reasoning": {"effort": "low", "mode": "x"}}, ["reasoning.mode"]),
    ("responses", {"context_management": [], "moderation": {}}, ["context_management", "moderation"]),
    ("messages", {"context_management": {"edits": []}}, ["context_management"]),
    ("messages", {"container": "c"}, ["container"]),
    ("messages", {"output_config": {"task_budget": {"total": 9}}}, ["output_config.task_budget"]),
    ("messages", {"thinking": {"type": "adaptive", "depth": 3}}, ["thinking.depth"]),
    ("messages", {"messages": [HI, {"role": "assistant", "content": "The"}]}, ["prefill"]),
]

# Taken and, where the dialect does so, repeated to the client: no effect on the answer is promised.
ACCEPTED: list[tuple[str, dict[str, Any]]] = [
    ("chat", {"user": "u", "metadata": {"a": "b"}, "store": True, "service_tier": "auto", "safety_identifier": "s"}),
    ("chat", {"prompt_cache_key": "k", "prompt_cache_retention": "24h", "prompt_cache_options": {}}),
    ("chat", {"stream": True, "stream_options": {"include_usage": True, "include_obfuscation": False}}),
    ("completions", {"user": "u", "prompt_cache_key": "k"}),
    ("responses", {"metadata": {"a": "b"}, "user": "u", "client_metadata": {"c": "d"}, "prompt_cache_key": "k"}),
    ("responses", {"include": ["reasoning.encrypted_content"], "reasoning": {"summary": "auto"}}),
    ("messages", {"metadata": {"user_id": "u"}, "service_tier": "auto", "betas": ["new-2027-01-01"], "speed": "fast"}),
    ("messages", {"cache_control": {"type": "ephemeral"}, "inference_geo": "eu", "diagnostics": {}}),
]

# Tools that nobody here can run.
DROPPED: list[tuple[str, list[dict[str, Any]], list[str]]] = [
    ("responses", [FUNCTION, {"type": "web_search"}, {"type": "image_generation"}], ["web_search", "image_generation"]),
    ("messages", [{"type": "web_search_20250305", "name": "web_search"}], ["web_search"]),
    ("messages", [{"type": "bash_20250124", "name": "bash"}, {"name": "f", "input_schema": SCHEMA}], ["bash"]),
]

# What is wrong, and the field that the error names.
WRONG: list[tuple[str, dict[str, Any], str]] = [
    *((dialect, {"model": 5}, "model") for dialect in PATHS),
    *((dialect, {"temperature": "hot"}, "temperature") for dialect in PATHS),
    *((dialect, {"top_p": 2}, "top_p") for dialect in PATHS),
    *((dialect, {"stream": "yes"}, "stream") for dialect in PATHS),
    *((dialect, {"logit_bias": {"5": "x"}}, "logit_bias") for dialect in PATHS),
    ("chat", {"messages": []}, "messages"),
    ("chat", {"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
    ("chat", {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages[0].content[0].type"),
    ("chat", {"reasoning_effort": "ultra-high"}, "reasoning_effort"),
    ("chat", {"reasoning_effort": True}, "reasoning_effort"),
    ("chat", {"reasoning": {"effort": ["low"]}}, "reasoning_effort"),
    ("chat", {"reasoning": {"max_tokens": "many"}}, "reasoning.max_tokens"),
    ("chat", {"n": 99}, "n"),
    ("chat", {"modalities": ["text", "audio"]}, "modalities"),
    ("chat", {"response_format": {"type": "xml"}}, "response_format.type"),
    ("chat", {"stream_options": {"include_usage": True}}, "stream_options"),
    ("chat", {"tools": [{"type": "function"}]}, "tools[0].function.name"),
    ("chat", {"tool_choice": "required"}, "tool_choice"),
    ("completions", {"prompt": {"a": 1}}, "prompt"),
    ("completions", {"max_tokens": -1}, "max_tokens"),
    ("completions", {"n": 99}, "n"),
    ("responses", {"input": 5}, "input"),
    ("responses", {"input": [{"type": "no_such_item"}]}, "input[0]"),
    ("responses", {"reasoning": {"effort": {"a": 1}}}, "reasoning.effort"),
    ("responses", {"conversation": "c"}, "conversation"),
    ("responses", {"tools": [{"type": "mcp", "server_url": "https://x"}]}, "tools[0]"),
    ("responses", {"tools": [{"type": "web_search"}], "tool_choice": "required"}, "tools[0]"),
    ("responses", {"text": {"format": {"type": "xml"}}}, "text.format.type"),
    ("messages", {"max_tokens": 0}, "max_tokens"),
    ("messages", {"messages": [{"role": "user"}]}, "messages.0.content"),
    ("messages", {"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages.0.content.0"),
    ("messages", {"output_config": {"effort": 5.5}}, "output_config.effort"),
    ("messages", {"thinking": {"type": "sometimes"}}, "thinking.type"),
    ("messages", {"stop_sequences": [" "]}, "stop_sequences.0"),
    ("messages", {"tools": [{"name": "f"}]}, "tools.0.input_schema"),
    ("messages", {"mcp_servers": [{"url": "https://x"}]}, "mcp_servers"),
]


@pytest.fixture
async def made() -> AsyncIterator[Engine]:
    async with engine(completes()) as made:
        yield made


@pytest.fixture
async def one(made: Engine) -> AsyncIterator[Running]:
    contract = {"efforts": ["low", "high", "max"]}
    async with gateway(config_of([pool_of(made.url, contract=contract)])) as one:
        yield one


def post(one: Running, dialect: str, fields: dict[str, Any]) -> Any:
    return one.client.post(one.url + PATHS[dialect], json=BODIES[dialect] | fields)


@pytest.mark.parametrize(("dialect", "fields", "names"), IGNORED)
async def test_what_has_no_effect_is_named(dialect, fields, names, made, one):
    async with post(one, dialect, fields) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["x-gateway-ignored-params"].split(", ") == names
    sent = made.asked[-1].body
    assert not {name.split(".")[0] for name in names if "." not in name} & sent.keys()


@pytest.mark.parametrize(("dialect", "fields"), ACCEPTED)
async def test_what_is_taken_is_not_called_ignored(dialect, fields, one):
    async with post(one, dialect, fields) as answer:
        assert answer.status == 200, await answer.text()
        assert "x-gateway-ignored-params" not in answer.headers


@pytest.mark.parametrize(("dialect", "tools", "names"), DROPPED)
async def test_tools_that_are_dropped_are_named(dialect, tools, names, made, one):
    async with post(one, dialect, {"tools": tools}) as answer:
        assert answer.status == 200, await answer.text()
        assert answer.headers["x-gateway-dropped-tools"].split(", ") == names
    assert len(made.asked[-1].body.get("tools", ())) == len(tools) - len(names)


@pytest.mark.parametrize(("dialect", "fields", "param"), WRONG)
async def test_what_is_wrong_is_named_in_the_dialects_own_error(dialect, fields, param, made, one):
    generations = len(made.asked)
    async with post(one, dialect, fields) as answer:
        body = await answer.json()
        assert answer.status == 400, body
        assert answer.headers["request-id"] == answer.headers["x-request-id"]
    if dialect == "messages":
        assert validate_error_body("anthropic", 400, body) == []
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["message"].startswith(param)
    else:
        assert body["error"]["type"] == "invalid_request_error"
        assert body["error"]["param"] == param
        assert body["error"]["message"]
    assert not any(asked.body for asked in made.asked[generations:]), "nothing wrong may reach an engine"


@pytest.mark.parametrize("dialect", PATHS)
@pytest.mark.parametrize("raw", [b"", b"[]", b'"x"', b'{"model": ', b"\xff\xfe", b"[" * 5000], ids=repr)
async def test_what_is_no_json_object_is_refused(dialect, raw, one):
    headers = {"content-type": "application/json"}
    async with one.client.post(one.url + PATHS[dialect], data=raw, headers=headers) as answer:
        body = json.loads(await answer.read())
        assert answer.status == 400
    assert body["error"]["type"] == "invalid_request_error"
    assert body.get("type") == ("error" if dialect == "messages" else None)


@pytest.mark.parametrize("dialect", PATHS)
async def test_a_field_that_must_be_there_is_named(dialect, one):
    for name in BODIES[dialect]:
        fields = {key: value for key, value in BODIES[dialect].items() if key != name}
        async with one.client.post(one.url + PATHS[dialect], json=fields) as answer:
            error = (await answer.json())["error"]
            assert answer.status == 400
            assert name in {error.get("param"), error["message"].partition(":")[0]}


async def test_what_is_left_out_of_the_prompt_is_in_the_trace(one, monkeypatch):
    item = {"type": "web_search_call", "id": "ws_1", "status": "completed"}
    records, finish = [], Telemetry.finish
    monkeypatch.setattr(Telemetry, "finish", lambda self, record: records.append(record) or finish(self, record))
    async with post(one, "responses", {"input": [HI, item, HI]}) as answer:
        assert answer.status == 200
    ((_, name, attributes),) = records[0].events
    assert (name, attributes) == (
        "left out of the prompt",
        {"parts": "input[1]: an item of type web_search_call was left out"},
    )
