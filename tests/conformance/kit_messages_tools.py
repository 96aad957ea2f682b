"""The kit's checks of tools in Messages, over HTTP with the official SDKs."""

from __future__ import annotations

from tests.conformance.check_messages import validate_message_object, validate_messages_stream
from tests.conformance.client import (
    ASK,
    ASK2,
    FN_ANT,
    PNG,
    Checks,
    dump,
    need,
    none_wrong,
    refused,
    split_done,
    weak,
)
from tests.conformance.kit_messages import akw

check = Checks()


@check("messages.tools.any")
def messages_tools_any(c):
    r = refused(
        lambda: c.an.messages.create(
            **akw(
                c,
                tools=[FN_ANT],
                tool_choice={"type": "any", "disable_parallel_tool_use": True},
                messages=[{"role": "user", "content": ASK}],
            )
        )
    )
    d = dump(r)
    none_wrong(validate_message_object(d))
    tu = [b for b in d["content"] if b["type"] == "tool_use"]
    weak(tu, "no tool_use")
    if d["stop_reason"] != "max_tokens":
        need(d["stop_reason"] == "tool_use", f"stop_reason {d['stop_reason']}")


@check("messages.tools.stream_and_roundtrip")
def messages_tools_stream_and_roundtrip(c):
    st, _h, ev, _, err = c.raw.sse(
        "/v1/messages", akw(c, stream=True, tools=[FN_ANT], messages=[{"role": "user", "content": ASK2}]), "anthropic"
    )
    need(st == 200, f"HTTP {st} {err}")
    ev, _ = split_done(ev)
    none_wrong(validate_messages_stream(ev))
    with c.an.messages.stream(**akw(c, tools=[FN_ANT], messages=[{"role": "user", "content": ASK2}])) as s:
        m = s.get_final_message()
    content = [b.model_dump(exclude_none=True) for b in m.content]
    tu = [b for b in content if b["type"] == "tool_use"]
    weak(tu, "no tool_use")
    content = [{k: v for k, v in b.items() if k not in ("citations", "caller", "parsed_output")} for b in content]
    res = [{"type": "tool_result", "tool_use_id": b["id"], "content": [{"type": "text", "text": "18C"}]} for b in tu]
    res[0]["is_error"] = True
    r = c.an.messages.create(
        **akw(
            c,
            tools=[FN_ANT],
            messages=[
                {"role": "user", "content": ASK2},
                {"role": "assistant", "content": content},
                {"role": "user", "content": [*res, {"type": "text", "text": "Go on."}]},
            ],
        )
    )
    none_wrong(validate_message_object(dump(r)))


@check("messages.tools.result_with_image")
def messages_tools_result_with_image(c):
    r = refused(
        lambda: c.an.messages.create(
            **akw(
                c,
                tools=[FN_ANT],
                messages=[
                    {"role": "user", "content": ASK},
                    {
                        "role": "assistant",
                        "content": [
                            {"type": "tool_use", "id": "toolu_01", "name": "get_weather", "input": {"city": "Paris"}}
                        ],
                    },
                    {
                        "role": "user",
                        "content": [
                            {
                                "type": "tool_result",
                                "tool_use_id": "toolu_01",
                                "content": [
                                    {"type": "text", "text": "picture"},
                                    {
                                        "type": "image",
                                        "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                                    },
                                ],
                            }
                        ],
                    },
                ],
            )
        )
    )
    none_wrong(validate_message_object(dump(r)))
