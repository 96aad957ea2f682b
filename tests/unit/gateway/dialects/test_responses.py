from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.dialects.registry import DecodeOptions, standard
from gateway.errors import Cause, GatewayError
from tests.conformance.assertions import summarise
from tests.conformance.check_responses import validate_response_object, validate_responses_stream
from tests.unit.gateway.dialects import support
from tests.unit.gateway.dialects.support import SGLANG, VLLM, client_events, decode, encode, sent, stream, transcoder

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 5}, "input"),
        ({"input": None}, "input"),
        ({"input": ["x"]}, "input[0]"),
        ({"input": [{"type": "no_such_item"}]}, "input[0]"),
        ({"input": [{}]}, "input[0].type"),
        ({"input": [{"role": "robot", "content": "x"}]}, "input[0].role"),
        ({"input": [{"role": "user"}]}, "input[0].content"),
        ({"input": [{"role": "user", "content": [{"type": "hologram"}]}]}, "input[0].content[0].type"),
        ({"input": [{"role": "user", "content": [{"type": "input_image", "file_id": "f"}]}]},
         "input[0].content[0].file_id"),
        ({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}, "input[0].call_id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input[0]"),
        ({"conversation": "c"}, "conversation"),
        ({"prompt": {"id": "p"}}, "prompt"),
        ({"background": True}, "background"),
        ({"previous_response_id": "resp_0"}, "previous_response_id"),
        ({"truncation": "some"}, "truncation"),
        ({"max_output_tokens": 0}, "max_output_tokens"),
        ({"text": {"format": {"type": "xml"}}}, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "n"}}}, "text.format.schema"),
        ({"reasoning": {"effort": "some"}}, "reasoning.effort"),
        ({"tools": [{"name": "f"}]}, "tools[0].type"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "mcp", "server_url": "x"}]}, "tools[0]"),
        ({"tools": [{"type": "file_search", "vector_store_ids": ["v"]}]}, "tools[0]"),
        ({"tools": [{"type": "code_interpreter"}], "tool_choice": {"type": "code_interpreter"}}, "tools[0]"),
        ({"tools": [TOOL], "tool_choice": {"type": "function", "name": "g"}}, "tool_choice"),
    ],
)  # fmt: skip
def test_bad_input_names_the_field(fields, param):
    with pytest.raises(GatewayError) as caught:
        decode("responses", fields)
    assert caught.value.param == param
    assert caught.value.cause.status == 400


def test_items_of_one_assistant_turn_are_one_message():
    items = [
        {"role": "user", "content": "go"},
        {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "need tool"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "looking"}]},
        {"type": "function_call", "id": "fc_1", "call_id": "call_1", "name": "f", "arguments": "{}"},
        {"type": "custom_tool_call", "call_id": "call_2", "name": "patch", "input": "*** Begin"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "function_call_output", "call_id": "call_1", "output": "18C"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": [{"type": "input_text", "text": "done"}]},
    ]
    _, assistant, first, second = sent("responses", {"input": items}, SGLANG)["messages"]
    assert assistant["reasoning_content"] == "need tool"
    assert assistant["content"] == "looking"
    assert [call["id"] for call in assistant["tool_calls"]] == ["call_1", "call_2"]
    assert json.loads(assistant["tool_calls"][1]["function"]["arguments"]) == {"input": "*** Begin"}
    assert (first["tool_call_id"], first["content"], second["content"]) == ("call_1", "18C", "done")
    assert decode("responses", {"input": items}).warnings == ["input[5]: an item of type web_search_call was left out"]


def test_sealed_reasoning_is_opened_and_foreign_is_dropped():
    def reasoning(blob):
        return {"type": "reasoning", "id": "rs", "summary": [], "encrypted_content": blob}

    answer = {"role": "assistant", "content": "a1"}
    ours = sent("responses", {"input": [reasoning(support.seal().close("deep", "glm")), answer]})["messages"]
    assert ours == [{"role": "assistant", "content": "a1", "reasoning": "deep"}]
    theirs = decode("responses", {"input": [reasoning("opaque"), answer]})
    assert theirs.warnings == ["input[0]: foreign encrypted reasoning was left out"]


def test_instructions_come_first_and_roles_keep_their_place():
    items = [{"role": "user", "content": "a"}, {"role": "developer", "content": "d"}, {"role": "user", "content": "b"}]
    messages = sent("responses", {"instructions": "i", "input": items})["messages"]
    assert [m["role"] for m in messages] == ["system", "user", "system", "user"]


def test_earlier_turns_go_before_the_input():
    options = DecodeOptions(seal=support.seal(), store=True)
    body = json.dumps({"model": "m", "input": "and?", "instructions": "i", "previous_response_id": "resp_1"}).encode()
    dialect = standard()["responses"]
    request = dialect.decode_request(body, {}, options)
    earlier = [{"role": "user", "content": "4711"}, {"type": "message", "role": "assistant", "content": "ok"}]
    dialect.extend(request, earlier, options)
    messages = json.loads(dialect.encode_engine_request(request, VLLM).body)["messages"]
    assert [m["content"] for m in messages] == ["i", "4711", "ok", "and?"]


def test_tools_of_codex():
    tools = [
        TOOL,
        {"type": "web_search"},
        {"type": "local_shell"},
        {"type": "namespace", "name": "mcp__fs", "tools": [{"type": "function", "name": "read", "parameters": {}}]},
        {"type": "custom", "name": "apply_patch", "format": {"type": "grammar", "syntax": "lark", "definition": "g"}},
    ]
    engine = encode("responses", {"tools": tools})
    names = [tool["function"]["name"] for tool in json.loads(engine.body)["tools"]]
    assert names == ["f", "mcp__fs__read", "apply_patch"]
    assert engine.headers["x-gateway-dropped-tools"] == "web_search, local_shell"


def test_allowed_tools_filter_what_the_engine_sees():
    tools = [TOOL, TOOL | {"name": "g"}]
    choice = {"type": "allowed_tools", "mode": "required", "tools": [{"type": "function", "name": "g"}]}
    body = sent("responses", {"tools": tools, "tool_choice": choice})
    assert [tool["function"]["name"] for tool in body["tools"]] == ["g"]
    assert body["tool_choice"] == "required"


def test_log_probabilities_are_asked_for_in_chat():
    fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    body = sent("responses", fields)
    assert (body["logprobs"], body["top_logprobs"]) == (True, 2)


def run(fields, data, target=VLLM):
    subject = transcoder("responses", {"stream": True} | fields, target)
    events = client_events(support.play(subject, data))
    assert validate_responses_stream(events) == []
    return subject, summarise("responses", events), [payload for _, payload in events]


@pytest.mark.parametrize("mode", ["summary", "raw", "hidden"])
def test_reasoning_in_each_mode(mode):
    target = replace(VLLM, responses_reasoning=mode)
    subject, seen, events = run({"store": False}, stream({"reasoning": "deep"}, {"content": "ok"}), target)
    assert seen["reasoning"] == ("" if mode == "hidden" else "deep")
    item = events[-1]["response"]["output"][0]
    assert support.seal().open(item["encrypted_content"]) == ("glm", "deep")
    assert bool(item["summary"]) is (mode == "summary")
    assert subject.resource == events[-1]["response"]


def test_custom_calls_come_back_as_text():
    tools = [{"type": "custom", "name": "patch"}]
    pieces = ['{"inp', 'ut": "a\\n', 'b"}']
    deltas = [support.tool(0, id="a", name="patch", args="")] + [support.tool(0, args=piece) for piece in pieces]
    _, seen, _ = run({"tools": tools}, stream(*deltas, finish="tool_calls"))
    assert seen["custom"] == [{"name": "patch", "input": "a\nb"}]


def test_calls_in_parallel_stay_apart():
    deltas = [
        support.tool(0, id="a", name="f", args=""), support.tool(1, id="b", name="f", args=""),
        support.tool(0, args='{"x"'), support.tool(1, args="{"), support.tool(0, args=":1}"), support.tool(1, args="}"),
    ]  # fmt: skip
    _, seen, _ = run({"tools": [TOOL]}, stream(*deltas, finish="tool_calls"))
    assert [call["arguments"] for call in seen["tools"]] == ['{"x":1}', "{}"]


def test_an_answer_cut_by_length_is_incomplete():
    _, seen, events = run({}, stream({"reasoning": "long"}, finish="length"))
    assert seen["finish"] == "incomplete"
    assert events[-1]["response"]["incomplete_details"] == {"reason": "max_output_tokens"}
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["reasoning"]


def test_an_empty_answer_is_an_empty_message():
    _, _, events = run({}, stream())
    assert [item["type"] for item in events[-1]["response"]["output"]] == ["message"]


def test_the_resource_repeats_the_request():
    fields = {
        "instructions": "i", "metadata": {"k": "v"}, "tools": [TOOL], "parallel_tool_calls": False,
        "temperature": 0.3, "reasoning": {"effort": "medium", "summary": "auto"},
        "text": {"format": {"type": "json_object"}},
    }  # fmt: skip
    out = json.loads(support.play(transcoder("responses", fields), support.whole({"content": "{}"})))
    assert validate_response_object(out) == []
    assert (out["instructions"], out["metadata"], out["parallel_tool_calls"]) == ("i", {"k": "v"}, False)
    assert out["reasoning"] == {"effort": "medium", "summary": "auto"}
    assert out["tools"][0]["strict"] is True
    assert out["store"] is False


def test_heartbeats_are_numbered_events_and_a_retry_goes_on():
    subject = transcoder("responses", {"stream": True})
    first = client_events(subject.keepalive())
    again = transcoder("responses", {"stream": True}, ids=subject._ids)
    assert validate_responses_stream(first + client_events(support.play(again, stream({"content": "x"})))) == []


@pytest.mark.parametrize("stream_it", [True, False])
def test_a_failed_answer_is_failed_in_the_store_too(stream_it):
    subject = transcoder("responses", {"stream": stream_it})
    subject.feed(stream({"content": "half"}, finish=None))
    subject.fail(GatewayError(Cause.RATE_LIMIT, "slow down"))
    assert subject.resource["status"] == "failed"
    assert subject.resource["error"] == {"code": "rate_limit_exceeded", "message": "slow down"}
