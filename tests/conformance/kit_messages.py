"""The kit's checks of Messages, over HTTP with the official SDKs."""

from __future__ import annotations

import json

import anthropic

from tests.conformance.check_messages import validate_error_body, validate_message_object, validate_messages_stream
from tests.conformance.client import (
    FN_ANT,
    PNG,
    SCHEMA,
    Checks,
    Skip,
    dump,
    need,
    none_wrong,
    raw_text,
    refused,
    split_done,
    weak,
)
from tests.conformance.models import is_json_object

check = Checks()


def akw(c, **k):
    return {"model": c.model, "max_tokens": c.mt, **k}


@check("messages.create")
def messages_create(c):
    r = c.an.messages.with_raw_response.create(
        **akw(c, messages=[{"role": "user", "content": "Say hello."}], system="Be brief.")
    )
    none_wrong(validate_message_object(json.loads(raw_text(r))))
    need(r.headers.get("request-id"), "no request-id header")


@check("messages.claude_code_shape")
def messages_claude_code_shape(c):
    body = akw(
        c,
        stream=True,
        temperature=1,
        system=[
            {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.1.0; cch=abcde;"},
            {"type": "text", "text": "You are a CLI.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        ],
        metadata={"user_id": json.dumps({"device_id": "d", "account_uuid": "", "session_id": "s"})},
        tools=[{**FN_ANT, "eager_input_streaming": True, "cache_control": {"type": "ephemeral"}}],
        thinking={"type": "adaptive"},
        output_config={"effort": "medium"},
        context_management={"edits": []},
        messages=[
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "<system-reminder>x</system-reminder>"},
                    {"type": "text", "text": "Say hello.", "cache_control": {"type": "ephemeral"}},
                ],
            },
            {"role": "system", "content": "<total_tokens>1000 tokens left</total_tokens>"},
        ],
    )
    st, _h, ev, _, err = c.raw.sse(
        "/v1/messages?beta=true",
        body,
        "anthropic",
        extra={
            "anthropic-beta": "claude-code-20250219,interleaved-thinking-2025-05-14,context-management-2025-06-27",
            "x-stainless-lang": "js",
            "user-agent": "claude-cli/2.1.0 (external, cli)",
            "anthropic-dangerous-direct-browser-access": "true",
        },
    )
    need(st == 200, f"HTTP {st} {err}")
    ev, _ = split_done(ev)
    none_wrong(validate_messages_stream(ev))


@check("messages.stream.raw")
def messages_stream_raw(c):
    st, h, ev, _, err = c.raw.sse(
        "/v1/messages", akw(c, stream=True, messages=[{"role": "user", "content": "Say hello."}]), "anthropic"
    )
    need(st == 200, f"HTTP {st} {err}")
    need(h.get("content-type", "").startswith("text/event-stream"), "content-type")
    need(h.get("request-id"), "no request-id")
    need(not any(d.strip() == "[DONE]" for _, d in ev), "[DONE] in an Anthropic stream")
    ev, _ = split_done(ev)
    none_wrong(validate_messages_stream(ev))


@check("messages.stream.sdk_helper")
def messages_stream_sdk_helper(c):
    with c.an.messages.stream(**akw(c, messages=[{"role": "user", "content": "Say hello."}])) as s:
        for _e in s:
            pass
        m = s.get_final_message()
    none_wrong(validate_message_object(dump(m)))
    need(m.usage.output_tokens > 0, "final usage.output_tokens is 0")
    need(
        m.usage.input_tokens + (m.usage.cache_read_input_tokens or 0) + (m.usage.cache_creation_input_tokens or 0) > 0,
        "no input tokens in final usage",
    )


@check("messages.bearer_auth")
def messages_bearer_auth(c):
    cl = anthropic.Anthropic(base_url=c.root, api_key=None, auth_token=c.key, max_retries=0, timeout=c.a.timeout)
    cl.messages.create(**akw(c, messages=[{"role": "user", "content": "hi"}]))


@check("messages.thinking_and_replay")
def messages_thinking_and_replay(c):
    mt = max(c.mt, 1100)
    r = c.an.messages.create(
        model=c.model,
        max_tokens=mt,
        thinking={"type": "enabled", "budget_tokens": 1024},
        messages=[{"role": "user", "content": "What is 17*23?"}],
    )
    d = dump(r)
    none_wrong(validate_message_object(d))
    th = [b for b in d["content"] if b["type"] == "thinking"]
    weak(th, "no thinking block")
    need(d["content"][0]["type"] == "thinking", "thinking is not the first block")
    content = [{k: v for k, v in b.items() if v is not None} for b in d["content"]]
    r2 = c.an.messages.create(
        model=c.model,
        max_tokens=mt,
        thinking={"type": "enabled", "budget_tokens": 1024},
        messages=[
            {"role": "user", "content": "What is 17*23?"},
            {"role": "assistant", "content": content},
            {"role": "user", "content": "And 18*23?"},
        ],
    )
    none_wrong(validate_message_object(dump(r2)))


@check("messages.thinking_disabled_policy")
def messages_thinking_disabled_policy(c):
    try:
        r = c.an.messages.with_raw_response.create(
            **akw(c, thinking={"type": "disabled"}, messages=[{"role": "user", "content": "hi"}])
        )
        d = json.loads(raw_text(r))
        none_wrong(validate_message_object(d))
        if any(b["type"] == "thinking" for b in d["content"]):
            c.note("thinking blocks returned although thinking was disabled")
    except anthropic.BadRequestError as e:
        c.note(f"thinking disabled refused: {str(e)[:100]}")


@check("messages.effort_values")
def messages_effort_values(c):
    bad = []
    for eff in ("low", "medium", "high", "xhigh", "max"):
        try:
            c.an.messages.create(
                **akw(
                    c,
                    output_config={"effort": eff},
                    thinking={"type": "adaptive"},
                    messages=[{"role": "user", "content": "hi"}],
                )
            )
        except anthropic.APIStatusError as e:
            bad.append(f"{eff}->{e.status_code}")
    need(not bad, ", ".join(bad))


@check("messages.json_schema")
def messages_json_schema(c):
    r = refused(
        lambda: c.an.messages.create(
            **akw(
                c,
                output_config={"format": {"type": "json_schema", "schema": SCHEMA}},
                messages=[{"role": "user", "content": "Answer 'yes' with score 3 as JSON."}],
            )
        )
    )
    d = dump(r)
    none_wrong(validate_message_object(d))
    if d["stop_reason"] == "max_tokens":
        raise Skip("hit max_tokens")
    weak(is_json_object("".join(b.get("text", "") for b in d["content"])), "text is not JSON")


@check("messages.count_tokens")
def messages_count_tokens(c):
    a = c.an.messages.count_tokens(model=c.model, messages=[{"role": "user", "content": "hi"}])
    b = c.an.messages.count_tokens(
        model=c.model,
        system="You are a very long system prompt. " * 20,
        tools=[FN_ANT],
        messages=[{"role": "user", "content": "hi"}],
    )
    need(0 < a.input_tokens < b.input_tokens, f"{a.input_tokens} vs {b.input_tokens}")
    z = c.an.beta.messages.count_tokens(
        model=c.model, messages=[{"role": "user", "content": "hi"}], betas=["token-counting-2024-11-01"]
    )
    need(z.input_tokens > 0, "beta count_tokens")


@check("messages.image_base64")
def messages_image_base64(c):
    r = refused(
        lambda: c.an.messages.create(
            **akw(
                c,
                messages=[
                    {
                        "role": "user",
                        "content": [
                            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                            {"type": "text", "text": "Describe."},
                        ],
                    }
                ],
            )
        )
    )
    none_wrong(validate_message_object(dump(r)))


@check("messages.max_tokens")
def messages_max_tokens(c):
    r = c.an.messages.create(
        model=c.model, max_tokens=2, messages=[{"role": "user", "content": "Count to one hundred."}]
    )
    d = dump(r)
    none_wrong(validate_message_object(d))
    weak(d["stop_reason"] == "max_tokens", f"stop_reason {d['stop_reason']} with 2 tokens")


@check("messages.stop_sequence")
def messages_stop_sequence(c):
    base = c.an.messages.create(
        **akw(c, extra_body={"temperature": 0}, messages=[{"role": "user", "content": "Say hello to the world."}])
    )
    txt = "".join(b.text for b in base.content if b.type == "text")
    weak(len(txt) > 6, "answer too short")
    w = txt[len(txt) // 2 :][:3]
    r = c.an.messages.create(
        **akw(
            c,
            extra_body={"temperature": 0},
            stop_sequences=[w],
            messages=[{"role": "user", "content": "Say hello to the world."}],
        )
    )
    d = dump(r)
    none_wrong(validate_message_object(d))
    got = "".join(b.get("text", "") for b in d["content"])
    need(w not in got, f"stop sequence {w!r} in text")
    weak(d["stop_reason"] == "stop_sequence", f"stop_reason {d['stop_reason']} (model did not repeat itself?)")
    need(d["stop_sequence"] == w, f"stop_sequence {d['stop_sequence']!r}")


@check("messages.prefill_last_assistant")
def messages_prefill_last_assistant(c):
    r = refused(
        lambda: c.an.messages.create(
            **akw(
                c,
                messages=[
                    {"role": "user", "content": "Name a color."},
                    {"role": "assistant", "content": "The color is"},
                ],
            )
        )
    )
    none_wrong(validate_message_object(dump(r)))


@check("messages.server_tool_policy")
def messages_server_tool_policy(c):
    try:
        r = c.an.messages.create(
            **akw(
                c,
                tools=[{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}, FN_ANT],
                messages=[{"role": "user", "content": "hi"}],
            )
        )
        none_wrong(validate_message_object(dump(r)))
        c.note("web_search server tool accepted (dropped or served)")
    except anthropic.BadRequestError as e:
        none_wrong(validate_error_body("anthropic", 400, e.body if isinstance(e.body, dict) else {}))


@check("messages.beta_create_stream")
def messages_beta_create_stream(c):
    n = 0
    for _ev in c.an.beta.messages.create(
        **akw(c, stream=True, betas=["interleaved-thinking-2025-05-14"], messages=[{"role": "user", "content": "hi"}])
    ):
        n += 1
    need(n >= 5, f"{n} events")


@check("http.probe_root")
def http_probe_root(c):
    for m, p in (("HEAD", "/"), ("GET", "/"), ("HEAD", "/v1/messages")):
        st, _h, _js, raw = c.raw.call(m, p, None, "anthropic")
        need(st < 500, f"{m} {p} -> {st}")
        if m == "HEAD":
            need(raw == b"", f"{m} {p} has a body")
