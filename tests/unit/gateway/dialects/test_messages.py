from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gateway.errors import GatewayError
from tests.conformance.assertions import summarise
from tests.conformance.check_messages import validate_messages_stream
from tests.unit.gateway.dialects import support
from tests.unit.gateway.dialects.support import (
    HI,
    SGLANG,
    VLLM,
    client_events,
    decode,
    encode,
    sent,
    stream,
    transcoder,
)

TOOL = {"name": "f", "input_schema": {"properties": {}}}
USE = {"type": "tool_use", "id": "a", "name": "f"}
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def user(*blocks):
    return {"messages": [{"role": "user", "content": list(blocks)}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages.0.content"),
        ({"messages": [{"role": "robot", "content": "x"}]}, "messages.0.role"),
        (user({"type": "text"}), "messages.0.content.0.text"),
        (user({"type": "hologram"}), "messages.0.content.0"),
        (user({"type": "image", "source": {"type": "file", "file_id": "f"}}), "messages.0.content.0.source"),
        (user({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": ""}}),
         "messages.0.content.0.source"),
        (user({"type": "tool_result"}), "messages.0.content.0.tool_use_id"),
        ({"messages": [HI, {"role": "assistant", "content": [USE | {"input": 3}]}]},
         "messages.1.content.0.input"),
        ({"stop_sequences": ["ok", " "]}, "stop_sequences.1"),
        ({"thinking": {"type": "sometimes"}}, "thinking.type"),
        ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
        ({"output_config": {"effort": "some"}}, "output_config.effort"),
        ({"output_config": {"format": {"type": "xml"}}}, "output_config.format"),
        ({"tools": [{"name": "f"}]}, "tools.0.input_schema"),
        ({"tools": [{"input_schema": {}}]}, "tools.0.name"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}],
          "tool_choice": {"type": "tool", "name": "web_search"}}, "tools.0"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}], "tool_choice": {"type": "any"}}, "tools.0"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
    ],
)  # fmt: skip
def test_bad_input_names_the_field(fields, param):
    with pytest.raises(GatewayError) as caught:
        decode("messages", fields)
    assert caught.value.param == param
    assert caught.value.message.startswith(param)


def test_system_keeps_its_blocks_without_the_billing_line():
    system = [{"type": "text", "text": t} for t in ("x-anthropic-billing-header: cch=1;", "You are.", "Be brief.")]
    [first, second] = sent("messages", {"system": system})["messages"]
    assert first == {"role": "system", "content": "You are.\n\nBe brief."}
    assert second == HI


def test_tool_results_follow_the_call_and_the_text_comes_after():
    use = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"city": "Paris"}}
    blocks = [
        {"type": "text", "text": "before"},
        {"type": "tool_result", "tool_use_id": "toolu_1", "is_error": True, "content": "no such city"},
        {"type": "text", "text": "after"},
    ]
    messages = [HI, {"role": "assistant", "content": [use]}, {"role": "user", "content": blocks}]
    _, call, result, rest = sent("messages", {"messages": messages, "tools": [TOOL]})["messages"]
    assert call["content"] is None
    assert json.loads(call["tool_calls"][0]["function"]["arguments"]) == {"city": "Paris"}
    assert result == {"role": "tool", "tool_call_id": "toolu_1", "content": "Error: no such city"}
    assert [part["text"] for part in rest["content"]] == ["before", "after"]


def test_images_stay_in_the_tool_result():
    result = {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "see"}, PNG]}
    [message] = sent("messages", user(result))["messages"]
    assert message["content"][1]["image_url"]["url"] == "data:image/png;base64,AA=="
    assert decode("messages", user(PNG)).traits.modalities == {"image"}
    with pytest.raises(GatewayError):
        sent("messages", user(PNG), replace(VLLM, images=False))


@pytest.mark.parametrize(
    ("fields", "effort", "hidden"),
    [
        ({"thinking": {"type": "adaptive"}}, "high", False),
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, "low", False),
        ({"thinking": {"type": "enabled", "budget_tokens": 9000}}, "high", False),
        ({"thinking": {"type": "enabled", "budget_tokens": 32000}}, "max", False),
        ({"thinking": {"type": "disabled"}}, "low", True),
        ({"thinking": None}, None, True),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "medium"}}, "high", False),
    ],
)
def test_thinking_sets_the_effort(fields, effort, hidden):
    engine = encode("messages", fields)
    assert (engine.effort, engine.hide_reasoning) == (effort, hidden)


def test_thinking_comes_back_out_of_its_seal():
    signature = support.seal().close("sealed", "glm")
    blocks = [
        {"type": "thinking", "thinking": "altered", "signature": signature},
        {"type": "thinking", "thinking": "foreign", "signature": "EqoB"},
        {"type": "redacted_thinking", "data": "foreign"},
        {"type": "redacted_thinking", "data": support.seal().close("other", "another-model")},
        {"type": "text", "text": "a"},
    ]
    fields = {"messages": [HI, {"role": "assistant", "content": blocks}, HI]}
    assert sent("messages", fields, SGLANG)["messages"][1]["reasoning_content"] == "sealed\nforeign"
    assert decode("messages", fields).warnings


def test_a_prefill_is_named_or_refused():
    fields = {"messages": [HI, {"role": "assistant", "content": "The color is"}]}
    assert "prefill" in encode("messages", fields).headers["x-gateway-ignored-params"]
    with pytest.raises(GatewayError):
        encode("messages", fields, strict_prefill=True)


def test_tools_and_choices():
    tool = TOOL | {"description": "d", "input_examples": [{"a": 1}], "strict": True, "eager_input_streaming": True}
    bash = {"type": "bash_20250124", "name": "bash"}
    choice = {"type": "any", "disable_parallel_tool_use": True}
    engine = encode("messages", {"tools": [tool, bash], "tool_choice": choice})
    body = json.loads(engine.body)
    assert engine.headers["x-gateway-dropped-tools"] == "bash"
    assert body["tool_choice"] == "required"
    assert body["parallel_tool_calls"] is False
    assert body["tools"][0]["function"]["parameters"]["type"] == "object"
    assert '{"a": 1}' in body["tools"][0]["function"]["description"]
    assert body["tools"][0]["function"]["strict"] is True
    loose = encode("messages", {"tools": [tool]}, replace(VLLM, strict_tools=False))
    assert "strict" not in json.loads(loose.body)["tools"][0]["function"]
    assert loose.adapted == ("tools.strict",)


def test_deferred_tools_appear_once_referred_to():
    tools = [TOOL, {"name": "late", "input_schema": {}, "defer_loading": True}]
    reference = {
        "type": "tool_result",
        "tool_use_id": "a",
        "content": [{"type": "tool_reference", "tool_name": "late"}],
    }
    assert len(sent("messages", {"tools": tools})["tools"]) == 1
    assert len(sent("messages", {"tools": tools} | user(reference))["tools"]) == 2


def test_sessions_of_claude_code():
    assert decode("messages", {"metadata": {"user_id": json.dumps({"session_id": "s1"})}}).session == "s1"
    assert decode("messages", {"metadata": {"user_id": "user_1_account__session_s2"}}).session == "s2"
    assert decode("messages", {"metadata": {"user_id": "plain"}}).session is None


def test_documents_and_search_results_become_text():
    blocks = [
        {"type": "document", "title": "T", "source": {"type": "text", "media_type": "text/plain", "data": "body"}},
        {"type": "search_result", "title": "R", "source": "http://x", "content": [{"type": "text", "text": "found"}]},
    ]
    [message] = sent("messages", user(*blocks))["messages"]
    assert "body" in message["content"][0]["text"]
    assert "found" in message["content"][1]["text"]


def run(fields, data, target=VLLM):
    subject = transcoder("messages", {"stream": True} | fields, target)
    events = client_events(support.play(subject, data))
    assert validate_messages_stream(events) == []
    return subject, summarise("messages", events), [payload for _, payload in events]


def test_hidden_thinking_is_counted_and_not_shown():
    usage = {"prompt_tokens": 5, "completion_tokens": 9, "completion_tokens_details": {"reasoning_tokens": 7}}
    data = stream({"reasoning": "secret"}, {"content": "ok"}, usage=usage)
    subject, seen, _ = run({"thinking": None}, data)
    assert (seen["reasoning"], seen["text"], seen["blocks"]) == ("", "ok", ["text"])
    assert subject.usage.reasoning == 7
    _, shown, _ = run({"thinking": None}, data, replace(VLLM, messages_show_thinking="always"))
    assert shown["reasoning"] == "secret"


def test_omitted_thinking_is_only_its_signature():
    fields = {"thinking": {"type": "adaptive", "display": "omitted"}}
    _, seen, events = run(fields, stream({"reasoning": "secret"}, {"content": "ok"}))
    assert seen["blocks"] == ["thinking", "text"]
    [signature] = [e["delta"]["signature"] for e in events if e.get("delta", {}).get("type") == "signature_delta"]
    assert support.seal().open(signature) == ("glm", "secret")


def test_an_empty_answer_has_an_empty_text_block():
    _, seen, _ = run({}, stream())
    assert seen["blocks"] == ["text"]


def test_text_between_calls_follows_them():
    call = support.tool(0, id="a", name="f", args="{}")
    _, seen, _ = run({"tools": [TOOL]}, stream({"content": "x"}, call, {"content": "y"}, finish="tool_calls"))
    assert seen["blocks"] == ["text", "tool_use", "text"]


def test_cache_counts_exclude_each_other():
    usage = {
        "prompt_tokens": 154,
        "completion_tokens": 8,
        "prompt_tokens_details": {"cached_tokens": 20, "created_cache_tokens": 128},
    }
    _, seen, _ = run({}, stream({"content": "x"}, usage=usage))
    assert seen["usage"]["input_tokens"] == 6
    assert (seen["usage"]["cache_read_input_tokens"], seen["usage"]["cache_creation_input_tokens"]) == (20, 128)


def test_a_filtered_answer_is_a_refusal():
    _, seen, events = run({}, stream({"content": "x"}, finish="content_filter"))
    assert seen["finish"] == "refusal"
    assert events[-2]["delta"]["stop_details"]["type"] == "refusal"


def test_a_stop_on_the_answer_ends_the_engine_and_names_itself():
    subject = transcoder("messages", {"stream": True, "stop_sequences": ["END"]})
    data = stream({"reasoning": "END"}, {"content": "one E"}, {"content": "ND two"}, finish=None)
    out = subject.feed(data)
    assert subject.abort_engine
    assert subject.finished
    seen = summarise("messages", client_events(out + subject.eof()))
    assert (seen["text"], seen["finish"], seen["stop_sequence"]) == ("one ", "stop_sequence", "END")
    assert subject.usage.estimated


@pytest.mark.parametrize("dialect", ["chat", "responses", "messages"])
def test_a_client_that_does_not_stream_gets_everything_at_the_end(dialect):
    subject = transcoder(dialect, {"stop_sequences" if dialect == "messages" else "stop": ["END"]})
    assert subject.feed(stream({"content": "one END two"})) == b""
    assert subject.abort_engine
    answer = json.loads(subject.eof())
    assert "one " in json.dumps(answer)
    assert "two" not in json.dumps(answer)


def test_arguments_that_are_no_object_are_kept_under_raw():
    call = {"id": "a", "function": {"name": "f", "arguments": '{"x": '}}
    body = support.whole({"content": None, "tool_calls": [call]}, "tool_calls")
    message = json.loads(support.play(transcoder("messages", {"tools": [TOOL]}), body))
    assert message["content"][0]["input"] == {"_raw": '{"x": '}


def test_pings_come_after_the_start_and_a_retry_does_not_start_again():
    subject = transcoder("messages", {"stream": True})
    first = client_events(subject.keepalive())
    assert [name for name, _ in first] == ["message_start", "ping"]
    ids = subject._ids
    again = transcoder("messages", {"stream": True}, ids=ids)
    rest = client_events(support.play(again, stream({"content": "x"})))
    assert validate_messages_stream(first + rest) == []
