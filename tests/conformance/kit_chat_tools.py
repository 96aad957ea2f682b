"""The kit's checks of tools in Chat, over HTTP with the official SDKs."""

from __future__ import annotations

from tests.conformance.check_chat import validate_chat_object, validate_chat_stream
from tests.conformance.client import (
    ASK,
    ASK2,
    FN_CHAT,
    Checks,
    Skip,
    dump,
    need,
    none_wrong,
    refused,
    split_done,
    weak,
)
from tests.conformance.models import is_json_object

check = Checks()


@check("chat.tools.required")
def chat_tools_required(c):
    r = refused(
        lambda: c.o.chat.completions.create(
            model=c.model,
            max_completion_tokens=c.mt,
            tools=[FN_CHAT],
            tool_choice="required",
            messages=[{"role": "user", "content": ASK}],
        )
    )
    d = dump(r)
    none_wrong(validate_chat_object(d))
    weak(d["choices"][0]["message"].get("tool_calls"), "no tool call")
    if d["choices"][0]["finish_reason"] == "length":
        raise Skip("hit max_tokens")
    need(d["choices"][0]["finish_reason"] == "tool_calls", f"finish_reason {d['choices'][0]['finish_reason']}")


@check("chat.tools.named")
def chat_tools_named(c):
    r = refused(
        lambda: c.o.chat.completions.create(
            model=c.model,
            max_completion_tokens=c.mt,
            tools=[FN_CHAT],
            tool_choice={"type": "function", "function": {"name": "get_weather"}},
            messages=[{"role": "user", "content": ASK}],
        )
    )
    d = dump(r)
    none_wrong(validate_chat_object(d))
    weak(d["choices"][0]["message"].get("tool_calls"), "no tool call")
    need(
        all(t["function"]["name"] == "get_weather" for t in d["choices"][0]["message"]["tool_calls"]),
        "another tool called",
    )


@check("chat.tools.none")
def chat_tools_none(c):
    r = c.o.chat.completions.create(
        model=c.model,
        max_completion_tokens=c.mt,
        tools=[FN_CHAT],
        tool_choice="none",
        messages=[{"role": "user", "content": ASK}],
    )
    need(not dump(r)["choices"][0]["message"].get("tool_calls"), "tool call although tool_choice none")


@check("chat.tools.stream")
def chat_tools_stream(c):
    st, _h, ev, _, err = c.raw.sse(
        "/v1/chat/completions",
        {
            "model": c.model,
            "stream": True,
            "max_tokens": c.mt,
            "tools": [FN_CHAT],
            "tool_choice": "required",
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": ASK}],
        },
    )
    if st == 400:
        raise Skip(f"refused: {err}")
    need(st == 200, f"HTTP {st} {err}")
    ev, done = split_done(ev)
    none_wrong(validate_chat_stream([d for _, d in ev], include_usage=True, done=done))
    weak(any(ch.get("delta", {}).get("tool_calls") for _, d in ev for ch in d.get("choices", [])), "no tool call")


@check("chat.tools.parallel_stream")
def chat_tools_parallel_stream(c):
    with c.o.chat.completions.stream(
        model=c.model,
        max_completion_tokens=c.mt,
        tools=[FN_CHAT],
        parallel_tool_calls=True,
        messages=[{"role": "user", "content": ASK2}],
    ) as s:
        for _e in s:
            pass
        fin = s.get_final_completion()
    tcs = fin.choices[0].message.tool_calls or []
    weak(len(tcs) >= 2, f"{len(tcs)} tool calls")
    need(len({t.id for t in tcs}) == len(tcs), "tool call ids repeat")
    for t in tcs:
        need(is_json_object(t.function.arguments), f"arguments {t.function.arguments!r:.80}")
        need(t.function.name == "get_weather", f"name {t.function.name!r}")


@check("chat.tools.roundtrip")
def chat_tools_roundtrip(c):
    r = c.o.chat.completions.create(
        model=c.model,
        max_completion_tokens=c.mt,
        tools=[FN_CHAT],
        messages=[
            {"role": "user", "content": ASK},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "I should call the tool.",
                "tool_calls": [
                    {
                        "id": "call_a",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'},
                    },
                    {
                        "id": "call_b",
                        "type": "function",
                        "function": {"name": "get_weather", "arguments": '{"city": "Rome"}'},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "call_a", "content": "18C"},
            {"role": "tool", "tool_call_id": "call_b", "content": [{"type": "text", "text": "25C"}]},
        ],
    )
    none_wrong(validate_chat_object(dump(r)))
