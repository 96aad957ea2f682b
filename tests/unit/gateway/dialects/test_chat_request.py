from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.dialects.registry import DecodeOptions, standard
from gateway.errors import Cause, GatewayError
from tests.unit.gateway.dialects import support
from tests.unit.gateway.dialects.support import HI, SGLANG, VLLM, decode, encode, sent

FUNCTION = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}


@pytest.mark.parametrize("dialect", ["chat", "completions"])
def test_what_needs_no_change_keeps_its_bytes(dialect):
    body = json.dumps(support.BODIES[dialect] | {"model": "glm", "temperature": 0.70, "max_tokens": 5}).encode()
    one = standard()[dialect]
    request = one.decode_request(body, {}, DecodeOptions())
    assert one.encode_engine_request(request, VLLM).body is body


def test_the_model_is_renamed_and_counts_are_always_asked_for():
    body = sent("chat", {"stream": True})
    assert body["model"] == "glm"
    assert body["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"messages": 3}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"content": "x"}]}, "messages[0]"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages[0].role"),
        ({"messages": [HI, {"role": "user", "content": 3}]}, "messages[1].content"),
        ({"messages": [{"role": "user", "content": [{"type": "hologram"}]}]}, "messages[0].content[0].type"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].tool_call_id"),
        ({"messages": [{"role": "user", "content": [{"type": "file", "file": {"file_id": "f"}}]}]},
         "messages[0].content[0].file.file_id"),
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": 3}, "temperature"),
        ({"n": 0}, "n"),
        ({"n": 99}, "n"),
        ({"top_logprobs": 21}, "top_logprobs"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"reasoning_effort": "ultra-high"}, "reasoning_effort"),
        ({"modalities": ["audio"]}, "modalities"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": [{"type": "function", "function": {}}]}, "tools[0].function"),
        ({"tools": [{"type": "mcp"}]}, "tools[0]"),
        ({"tools": [FUNCTION], "tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"functions": [{"name": "f"}], "tools": [FUNCTION]}, "functions"),
    ],
)  # fmt: skip
def test_bad_input_names_the_field(fields, param):
    with pytest.raises(GatewayError) as caught:
        encode("chat", fields)
    assert caught.value.param == param
    assert caught.value.cause.status == 400


@pytest.mark.parametrize("body", [b"{not json", b"[1]", b"", b'{"model":"m"}', b'{"messages":[]}', b"\xff"])
@pytest.mark.parametrize("dialect", ["chat", "completions", "responses", "messages"])
def test_bodies_that_are_none(dialect, body):
    with pytest.raises(GatewayError) as caught:
        standard()[dialect].decode_request(body, {}, DecodeOptions())
    assert caught.value.cause is Cause.BAD_REQUEST


def test_what_has_no_effect_is_named_and_not_sent():
    engine = encode("chat", {"verbosity": "low", "new_field": 1, "store": True, "user": "u", "metadata": {}})
    assert engine.headers["x-gateway-ignored-params"] == "verbosity, new_field"
    assert json.loads(engine.body).keys() == {"model", "messages"}


def test_steering_fields_need_a_grant():
    assert "priority" not in sent("chat", {"priority": 9})
    assert "priority" in encode("chat", {"priority": 9}).headers["x-gateway-ignored-params"]
    assert "priority" in sent("chat", {"priority": 9}, grants=frozenset({"priority"}))


def test_a_higher_priority_is_sooner_on_every_engine():
    granted = frozenset({"priority"})
    assert sent("chat", {"priority": 9}, VLLM, grants=granted)["priority"] == -9
    assert sent("chat", {"priority": 9}, SGLANG, grants=granted)["priority"] == 9


def test_effort_is_mapped_and_told():
    engine = encode("chat", {"reasoning_effort": "medium"})
    assert json.loads(engine.body)["reasoning_effort"] == "high"
    assert engine.headers["x-gateway-reasoning-effort"] == "high;requested=medium"


@pytest.mark.parametrize(
    ("fields", "effort"),
    [
        ({"reasoning": {"effort": "low"}}, "low"),
        ({"chat_template_kwargs": {"reasoning_effort": "low"}}, "low"),
        ({"chat_template_kwargs": {"enable_thinking": False}}, "low"),
        ({"reasoning": {"enabled": False}}, "low"),
        ({"reasoning_effort": "max", "reasoning": {"effort": "low"}}, "max"),
    ],
)
def test_effort_has_one_place(fields, effort):
    body = sent("chat", fields)
    assert body["reasoning_effort"] == effort
    assert "reasoning" not in body
    assert "chat_template_kwargs" not in body


def test_other_template_arguments_stay():
    kwargs = {"enable_thinking": True, "lang": "de", "clear_thinking": True}
    assert sent("chat", {"chat_template_kwargs": kwargs})["chat_template_kwargs"] == {
        "lang": "de",
        "clear_thinking": True,
    }


def test_stops_stay_away_from_reasoning():
    assert "stop" not in sent("chat", {"stop": ["x", ""]})
    assert sent("chat", {"stop": ["x"]})["stream"] is True
    assert sent("chat", {"stop": "x"}, replace(VLLM, stop_scope="engine"))["stop"] == ["x"]
    assert sent("completions", {"stop": "x"})["stop"] == "x"


def test_the_developer_becomes_the_system_where_the_template_knows_none():
    messages = {"messages": [{"role": "developer", "content": "d"}, HI]}
    assert sent("chat", messages)["messages"][0]["role"] == "system"
    assert sent("chat", messages, replace(VLLM, developer_role=True))["messages"][0]["role"] == "developer"


def test_history_is_what_templates_expect():
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "oops"}}
    messages = [
        {"role": "assistant", "content": "<think>\nhm\n</think>\n\nhello"},
        {"role": "assistant", "content": None, "reasoning": "r", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "18C"}]},
    ]
    first, second, third = sent("chat", {"messages": messages}, SGLANG)["messages"]
    assert first == {"role": "assistant", "content": "hello", "reasoning_content": "hm"}
    assert second["reasoning_content"] == "r"
    assert json.loads(second["tool_calls"][0]["function"]["arguments"]) == {"_raw": "oops"}
    assert third == messages[2]


def test_a_text_file_becomes_text():
    part = {"type": "file", "file": {"filename": "a.txt", "file_data": "data:text/plain;base64,aGVsbG8="}}
    [message] = sent("chat", {"messages": [{"role": "user", "content": [part]}]})["messages"]
    assert "hello" in message["content"][0]["text"]


def test_deprecated_functions():
    fields = {"functions": [{"name": "f"}], "function_call": {"name": "f"}, "messages": [
        HI, {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "18C"},
    ]}  # fmt: skip
    body = sent("chat", fields)
    assert body["tool_choice"]["function"]["name"] == "f"
    assert body["messages"][1]["tool_calls"][0]["id"] == body["messages"][2]["tool_call_id"]
    answer = support.whole({"tool_calls": [{"id": "a", "function": {"name": "f", "arguments": "{}"}}]}, "tool_calls")
    choice = json.loads(support.play(support.transcoder("chat", fields), answer))["choices"][0]
    assert choice["finish_reason"] == "function_call"
    assert choice["message"]["function_call"] == {"name": "f", "arguments": "{}"}


def test_custom_tools_are_functions_to_the_engine():
    form = {"type": "grammar", "grammar": {"syntax": "lark", "definition": "start: /x/"}}
    fields = {"tools": [{"type": "custom", "custom": {"name": "patch", "format": form}}], "stream": True}
    function = sent("chat", fields)["tools"][0]["function"]
    assert function["parameters"]["required"] == ["input"]
    assert "start: /x/" in function["description"]
    data = support.stream(support.tool(0, id="a", name="patch", args='{"input":"x\\n"}'), finish="tool_calls")
    out = support.play(support.transcoder("chat", fields), data)
    assert b'"custom":{"input":"x\\n"}' in out


def test_long_names_come_back_whole():
    name = "mcp__" + "x" * 80
    fields = {"tools": [{"type": "function", "function": {"name": name}}]}
    short = sent("chat", fields)["tools"][0]["function"]["name"]
    assert len(short) == 64
    answer = support.whole({"tool_calls": [{"id": "a", "function": {"name": short, "arguments": "{}"}}]}, "tool_calls")
    out = json.loads(support.play(support.transcoder("chat", fields), answer))
    assert out["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == name


def test_constraints_are_spelled_for_the_engine():
    assert sent("chat", {"regex": "a+"})["structured_outputs"] == {"regex": "a+"}
    assert sent("chat", {"structured_outputs": {"grammar": "g"}}, SGLANG)["ebnf"] == "g"
    assert sent("chat", {"structured_outputs": {"choice": ["a.b", "c"]}}, SGLANG)["regex"] == r"(a\.b)|(c)"
    assert sent("chat", {"guided_json": {"type": "object"}})["structured_outputs"] == {"json": {"type": "object"}}
    with pytest.raises(GatewayError):
        sent("chat", {"regex": "a"}, replace(VLLM, structured="none"))


def test_traits():
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    traits = decode("chat", {
        "messages": [{"role": "user", "content": [image]}], "n": 2, "tools": [FUNCTION], "tool_choice": "required",
        "logprobs": True, "top_logprobs": 3, "stop": ["a"], "max_tokens": 9, "stream": True, "reasoning_effort": "low",
        "response_format": {"type": "json_object"}, "regex": "a",
    }).traits  # fmt: skip
    assert traits.modalities == {"image"}
    assert (traits.tools, traits.tool_choice, traits.format, traits.grammar) == (
        True,
        "required",
        "json_object",
        "regex",
    )
    assert (traits.n, traits.logprobs, traits.top_logprobs, traits.stops) == (2, True, 3, 1)
    assert (traits.max_output, traits.stream, traits.effort) == (9, True, "low")


@pytest.mark.parametrize(("prompt", "n"), [("a", 1), (["a", "b"], 2), ([1, 2, 3], 1), ([[1], [2], [3]], 3)])
def test_prompts_of_completions(prompt, n):
    assert decode("completions", {"prompt": prompt}).traits.n == n


def test_the_salt_is_the_pools():
    target = replace(VLLM, cache_salt="derived")
    assert sent("chat", {"cache_salt": "mine"}, target, grants=frozenset({"cache_salt"}))["cache_salt"] == "derived"
    assert sent("messages", {}, target)["cache_salt"] == "derived"
