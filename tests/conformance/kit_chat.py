"""The kit's checks of Chat and Completions, over HTTP with the official SDKs."""

from __future__ import annotations

import json

import openai
import pydantic
from openai.types import Completion

from tests.conformance.check_chat import validate_chat_object, validate_chat_stream
from tests.conformance.client import (
    PNG,
    SCHEMA,
    Answer,
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
from tests.conformance.models import CHAT_FINISH, is_json_object, strict

check = Checks()


@check("models.list")
def models_list(c):
    m = c.o.models.list()
    need(any(x.id == c.model for x in m.data), f"{c.model} not in /v1/models: {[x.id for x in m.data][:5]}")
    for x in m.data:
        need(x.object == "model", "object != model")
    r = c.o.models.retrieve(c.model)
    need(r.id == c.model, "retrieve returns another id")


@check("chat.sync")
def chat_sync(c):
    r = c.o.chat.completions.with_raw_response.create(
        model=c.model,
        max_tokens=c.mt,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Say hello."}],
    )
    none_wrong(validate_chat_object(json.loads(raw_text(r))))
    need(r.headers.get("x-request-id"), "no x-request-id header")
    need(r.headers.get("content-type", "").startswith("application/json"), "content-type")
    if not any(h.startswith("x-ratelimit-") for h in r.headers):
        c.note("no x-ratelimit-* headers")


@check("chat.content_parts_and_developer_role")
def chat_content_parts_and_developer_role(c):
    r = c.o.chat.completions.create(
        model=c.model,
        max_completion_tokens=c.mt,
        messages=[
            {"role": "developer", "content": [{"type": "text", "text": "Be brief."}]},
            {"role": "user", "content": [{"type": "text", "text": "Say"}, {"type": "text", "text": "hello."}]},
        ],
    )
    none_wrong(validate_chat_object(dump(r)))


@check("chat.harmless_fields_accepted")
def chat_harmless_fields_accepted(c):
    r = (
        c.o.chat.completions.create(
            model=c.model,
            max_completion_tokens=c.mt,
            seed=7,
            user="u1",
            metadata={"a": "b"},
            store=False,
            service_tier="auto",
            safety_identifier="s",
            prompt_cache_key="k",
            temperature=0.7,
            top_p=0.9,
            presence_penalty=0,
            frequency_penalty=0,
            parallel_tool_calls=True,
            messages=[{"role": "user", "content": "hi"}],
        )
        if c.a.strict_fields
        else c.o.chat.completions.create(
            model=c.model,
            max_completion_tokens=c.mt,
            seed=7,
            user="u1",
            metadata={"a": "b"},
            store=False,
            service_tier="auto",
            safety_identifier="s",
            prompt_cache_key="k",
            temperature=0.7,
            top_p=0.9,
            messages=[{"role": "user", "content": "hi"}],
        )
    )
    none_wrong(validate_chat_object(dump(r)))


@check("chat.stream.raw")
def chat_stream_raw(c):
    st, h, ev, _, err = c.raw.sse(
        "/v1/chat/completions",
        {"model": c.model, "stream": True, "max_tokens": c.mt, "messages": [{"role": "user", "content": "Say hello."}]},
    )
    need(st == 200, f"HTTP {st} {err}")
    need(h.get("content-type", "").startswith("text/event-stream"), f"content-type {h.get('content-type')}")
    need(h.get("x-request-id"), "no x-request-id")
    ev, done = split_done(ev)
    none_wrong(validate_chat_stream([d for _, d in ev], include_usage=False, done=done))


@check("chat.stream.include_usage")
def chat_stream_include_usage(c):
    st, _h, ev, _, err = c.raw.sse(
        "/v1/chat/completions",
        {
            "model": c.model,
            "stream": True,
            "max_tokens": c.mt,
            "stream_options": {"include_usage": True},
            "messages": [{"role": "user", "content": "Say hello."}],
        },
    )
    need(st == 200, f"HTTP {st} {err}")
    ev, done = split_done(ev)
    none_wrong(validate_chat_stream([d for _, d in ev], include_usage=True, done=done))


@check("chat.stream.sdk_helper")
def chat_stream_sdk_helper(c):
    with c.o.chat.completions.stream(
        model=c.model, max_completion_tokens=c.mt, messages=[{"role": "user", "content": "Say hello."}]
    ) as s:
        kinds = {e.type for e in s}
        fin = s.get_final_completion()
    need("chunk" in kinds, "no chunk events")
    need(fin.choices[0].finish_reason in CHAT_FINISH, f"finish_reason {fin.choices[0].finish_reason}")


@check("chat.reasoning_visible")
def chat_reasoning_visible(c):
    r = c.o.chat.completions.create(
        model=c.model, max_completion_tokens=c.mt, messages=[{"role": "user", "content": "What is 17*23?"}]
    )
    m = dump(r)["choices"][0]["message"]
    weak(m.get("reasoning_content") or m.get("reasoning"), "no reasoning in this answer")
    need(m.get("reasoning_content"), "reasoning only under `reasoning`; `reasoning_content` absent")
    need(
        "<think>" not in (m.get("content") or "") and "</think>" not in (m.get("content") or ""),
        "think tags leak into content",
    )


@check("chat.reasoning_effort_values")
def chat_reasoning_effort_values(c):
    bad = []
    for eff in ("none", "minimal", "low", "medium", "high", "xhigh", "max"):
        try:
            r = c.o.chat.completions.with_raw_response.create(
                model=c.model,
                max_completion_tokens=c.mt,
                reasoning_effort=eff,
                messages=[{"role": "user", "content": "hi"}],
            )
            if eff not in ("low", "high", "max") and not any("effort" in k for k in r.headers):
                c.note(f"effort {eff}: no header telling the effort actually used")
        except openai.APIStatusError as e:
            bad.append(f"{eff}->{e.status_code}")
    need(not bad, "effort values refused: " + ", ".join(bad))


@check("chat.json_schema.parse")
def chat_json_schema_parse(c):
    r = refused(
        lambda: c.o.chat.completions.create(
            model=c.model,
            max_completion_tokens=c.mt,
            response_format={
                "type": "json_schema",
                "json_schema": {"name": "answer", "schema": SCHEMA, "strict": True},
            },
            messages=[{"role": "user", "content": "Answer 'yes' with score 3 as JSON."}],
        )
    )
    d = dump(r)
    none_wrong(validate_chat_object(d))
    if d["choices"][0]["finish_reason"] == "length":
        raise Skip("hit max_tokens")
    weak(is_json_object(d["choices"][0]["message"]["content"]), "content is not JSON")
    try:
        p = c.o.chat.completions.parse(
            model=c.model,
            max_completion_tokens=c.mt,
            response_format=Answer,
            messages=[{"role": "user", "content": "Answer 'yes' with score 3 as JSON."}],
        )
        need(p.choices[0].message.parsed is not None, "parsed is None")
    except (pydantic.ValidationError, openai.LengthFinishReasonError) as e:
        raise Skip(f"weak model: {type(e).__name__}") from None


@check("chat.logprobs")
def chat_logprobs(c):
    r = refused(
        lambda: c.o.chat.completions.create(
            model=c.model,
            max_completion_tokens=c.mt,
            logprobs=True,
            top_logprobs=2,
            messages=[{"role": "user", "content": "Say hello."}],
        )
    )
    d = dump(r)
    none_wrong(validate_chat_object(d))
    lp = d["choices"][0].get("logprobs")
    weak(d["choices"][0]["message"].get("content"), "empty content")
    need(lp and lp.get("content"), "logprobs asked, none returned")
    t = lp["content"][0]
    need({"token", "logprob", "bytes", "top_logprobs"} <= set(t), f"entry keys {sorted(t)}")


@check("chat.n2")
def chat_n2(c):
    r = refused(
        lambda: c.o.chat.completions.create(
            model=c.model, max_completion_tokens=c.mt, n=2, messages=[{"role": "user", "content": "Say a word."}]
        )
    )
    d = dump(r)
    none_wrong(validate_chat_object(d))
    need(sorted(x["index"] for x in d["choices"]) == [0, 1], "choice indexes")
    st, _h, ev, _, err = c.raw.sse(
        "/v1/chat/completions",
        {
            "model": c.model,
            "stream": True,
            "max_tokens": c.mt,
            "n": 2,
            "messages": [{"role": "user", "content": "Say a word."}],
        },
    )
    need(st == 200, f"HTTP {st} {err}")
    ev, done = split_done(ev)
    none_wrong(validate_chat_stream([x for _, x in ev], n=2, done=done))


@check("chat.length")
def chat_length(c):
    r = c.o.chat.completions.create(
        model=c.model, max_completion_tokens=2, messages=[{"role": "user", "content": "Count to one hundred."}]
    )
    d = dump(r)
    none_wrong(validate_chat_object(d))
    weak(
        d["choices"][0]["finish_reason"] == "length",
        f"finish_reason {d['choices'][0]['finish_reason']} with max 2 tokens",
    )


@check("chat.stop_on_answer_only")
def chat_stop_on_answer_only(c):
    base = c.o.chat.completions.create(
        model=c.model,
        max_completion_tokens=c.mt,
        temperature=0,
        seed=1,
        messages=[{"role": "user", "content": "Say hello to the world."}],
    )
    m = dump(base)["choices"][0]["message"]
    weak(m.get("content") and len(m["content"]) > 6, "answer too short to cut")
    word = m["content"][len(m["content"]) // 2 :][:3]
    r = c.o.chat.completions.create(
        model=c.model,
        max_completion_tokens=c.mt,
        temperature=0,
        seed=1,
        stop=[word],
        messages=[{"role": "user", "content": "Say hello to the world."}],
    )
    d = dump(r)
    none_wrong(validate_chat_object(d))
    need(word not in (d["choices"][0]["message"].get("content") or ""), f"stop string {word!r} is in content")
    need(d["choices"][0]["finish_reason"] in ("stop", "length"), "finish_reason")
    rc = m.get("reasoning_content") or ""
    if len(rc) > 12:
        w2 = rc[4:10]
        if w2 not in m["content"]:
            r2 = dump(
                c.o.chat.completions.create(
                    model=c.model,
                    max_completion_tokens=c.mt,
                    temperature=0,
                    seed=1,
                    stop=[w2],
                    messages=[{"role": "user", "content": "Say hello to the world."}],
                )
            )
            need(
                r2["choices"][0]["message"].get("content") or r2["choices"][0]["finish_reason"] == "length",
                f"stop {w2!r}, present only in the reasoning, emptied the answer",
            )


@check("chat.image_data_url")
def chat_image_data_url(c):
    r = refused(
        lambda: c.o.chat.completions.create(
            model=c.model,
            max_completion_tokens=c.mt,
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "text", "text": "Describe."},
                        {"type": "image_url", "image_url": {"url": "data:image/png;base64," + PNG, "detail": "low"}},
                    ],
                }
            ],
        )
    )
    none_wrong(validate_chat_object(dump(r)))


@check("completions.sync_and_stream")
def completions_sync_and_stream(c):
    r = refused(lambda: c.o.completions.create(model=c.model, prompt="Once upon", max_tokens=8))
    e = strict(Completion, dump(r))
    none_wrong(e)
    need(r.id.startswith("cmpl-"), f"id {r.id}")
    got = list(c.o.completions.create(model=c.model, prompt="Once upon", max_tokens=8, stream=True))
    need(got and any(x.choices and x.choices[0].finish_reason for x in got), "no finish_reason in stream")
