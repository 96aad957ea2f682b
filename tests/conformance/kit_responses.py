"""The kit's checks of Responses, over HTTP with the official SDKs."""

from __future__ import annotations

import json

import openai
import pydantic

from tests.conformance.check_responses import validate_response_object, validate_responses_stream
from tests.conformance.client import (
    ASK,
    ASK2,
    FN_RESP,
    PNG,
    Answer,
    Checks,
    Fail,
    Skip,
    dump,
    need,
    none_wrong,
    raw_text,
    refused,
    split_done,
    weak,
)

check = Checks()


def rkw(c, **k):
    return {"model": c.model, "max_output_tokens": c.mt, "store": False, **k}


@check("responses.create")
def responses_create(c):
    r = c.o.responses.with_raw_response.create(**rkw(c, input="Say hello.", instructions="Be brief."))
    d = json.loads(raw_text(r))
    none_wrong(validate_response_object(d))
    need(r.headers.get("x-request-id"), "no x-request-id")
    need(d.get("instructions") == "Be brief.", "instructions not echoed")
    need(d.get("store") is False, "store not echoed")
    types = [x["type"] for x in d["output"]]
    if "reasoning" in types and "message" in types:
        need(types.index("reasoning") < types.index("message"), f"reasoning after message: {types}")


@check("responses.input_items_shapes")
def responses_input_items_shapes(c):
    r = c.o.responses.create(
        **rkw(
            c,
            input=[
                {"role": "developer", "content": "Be brief."},
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "My name is Alice."}]},
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Hello Alice", "annotations": []}],
                },
                {"role": "assistant", "content": "How can I help?"},
                {"role": "user", "content": "Say my name."},
            ],
        )
    )
    none_wrong(validate_response_object(dump(r)))


@check("responses.stream.raw")
def responses_stream_raw(c):
    st, h, ev, _, err = c.raw.sse("/v1/responses", rkw(c, input="Say hello.", stream=True))
    need(st == 200, f"HTTP {st} {err}")
    need(h.get("content-type", "").startswith("text/event-stream"), "content-type")
    ev, _done = split_done(ev)
    none_wrong(validate_responses_stream(ev))
    types = [d["type"] for _, d in ev]
    need(types[1] == "response.in_progress", f"second event {types[1]}")


@check("responses.stream.sdk_helper")
def responses_stream_sdk_helper(c):
    with c.o.responses.stream(**rkw(c, input="Say hello.")) as s:
        for _e in s:
            pass
        need(s.get_final_response().status in ("completed", "incomplete"), "status")


@check("responses.stream.incomplete")
def responses_stream_incomplete(c):
    st, _h, ev, _, err = c.raw.sse(
        "/v1/responses", rkw(c, input="Count to one hundred.", stream=True, max_output_tokens=16)
    )
    need(st == 200, f"HTTP {st} {err}")
    ev, _ = split_done(ev)
    none_wrong(validate_responses_stream(ev))
    last = ev[-1][1]
    weak(last["type"] == "response.incomplete", f"ended {last['type']} within 16 tokens")
    need(
        last["response"]["incomplete_details"] == {"reason": "max_output_tokens"},
        f"{last['response']['incomplete_details']}",
    )


@check("responses.stream.reasoning_summary")
def responses_stream_reasoning_summary(c):
    st, _h, ev, _, err = c.raw.sse(
        "/v1/responses",
        rkw(
            c,
            input="What is 17*23?",
            stream=True,
            reasoning={"effort": "low", "summary": "auto"},
            include=["reasoning.encrypted_content"],
        ),
    )
    need(st == 200, f"HTTP {st} {err}")
    ev, _ = split_done(ev)
    none_wrong(validate_responses_stream(ev))
    rs = [d["item"] for _, d in ev if d["type"] == "response.output_item.done" and d["item"]["type"] == "reasoning"]
    weak(rs, "no reasoning item")
    need(
        all(isinstance(x.get("encrypted_content"), str) and x["encrypted_content"] for x in rs),
        "include=reasoning.encrypted_content not honoured",
    )
    need(all(x["summary"] for x in rs), "summary asked, reasoning item has none")


@check("responses.tools")
def responses_tools(c):
    r = refused(lambda: c.o.responses.create(**rkw(c, input=ASK, tools=[FN_RESP], tool_choice="required")))
    d = dump(r)
    none_wrong(validate_response_object(d))
    weak(any(x["type"] == "function_call" for x in d["output"]), "no function_call")


@check("responses.tools.stream_and_stateless_roundtrip")
def responses_tools_stream_and_stateless_roundtrip(c):
    st, _h, ev, _, err = c.raw.sse(
        "/v1/responses",
        rkw(
            c,
            input=ASK2,
            stream=True,
            tools=[FN_RESP],
            parallel_tool_calls=True,
            include=["reasoning.encrypted_content"],
        ),
    )
    need(st == 200, f"HTTP {st} {err}")
    ev, _ = split_done(ev)
    none_wrong(validate_responses_stream(ev))
    out = ev[-1][1]["response"]["output"]
    calls = [x for x in out if x["type"] == "function_call"]
    weak(calls, "no function_call")
    need(len({x["call_id"] for x in calls}) == len(calls), "call_ids repeat")
    inp = (
        [{"role": "user", "content": ASK2}]
        + out
        + [{"type": "function_call_output", "call_id": x["call_id"], "output": "18C"} for x in calls]
    )
    r = c.o.responses.create(**rkw(c, input=inp, tools=[FN_RESP]))
    none_wrong(validate_response_object(dump(r)))


@check("responses.tools.output_with_image_parts")
def responses_tools_output_with_image_parts(c):
    r = refused(
        lambda: c.o.responses.create(
            **rkw(
                c,
                tools=[FN_RESP],
                input=[
                    {"role": "user", "content": ASK},
                    {
                        "type": "function_call",
                        "call_id": "call_1",
                        "name": "get_weather",
                        "arguments": '{"city":"Paris"}',
                    },
                    {
                        "type": "function_call_output",
                        "call_id": "call_1",
                        "output": [
                            {"type": "input_text", "text": "see picture"},
                            {"type": "input_image", "image_url": "data:image/png;base64," + PNG, "detail": "auto"},
                        ],
                    },
                ],
            )
        )
    )
    none_wrong(validate_response_object(dump(r)))


@check("responses.custom_tool")
def responses_custom_tool(c):
    tool = {
        "type": "custom",
        "name": "apply_patch",
        "description": "Apply a patch, free text.",
        "format": {"type": "grammar", "syntax": "lark", "definition": "start: /(.|\\n)+/"},
    }
    st, _h, ev, _, err = c.raw.sse(
        "/v1/responses",
        rkw(
            c,
            input="Call apply_patch with the text: *** Begin Patch",
            stream=True,
            tools=[tool],
            tool_choice={"type": "custom", "name": "apply_patch"},
        ),
    )
    if st == 400:
        raise Skip(f"custom tools refused: {str(err)[:120]}")
    need(st == 200, f"HTTP {st} {err}")
    ev, _ = split_done(ev)
    none_wrong(validate_responses_stream(ev))
    types = {d["item"]["type"] for _, d in ev if d["type"] == "response.output_item.done"}
    need("function_call" not in types, "a custom tool came back as function_call")
    weak("custom_tool_call" in types, "no custom tool call")


@check("responses.structured_parse")
def responses_structured_parse(c):
    def go():
        return c.o.responses.parse(
            model=c.model,
            max_output_tokens=c.mt,
            store=False,
            text_format=Answer,
            input="Answer 'yes' with score 3 as JSON.",
        )

    try:
        r = refused(go)
    except pydantic.ValidationError:
        raise Skip("weak model: text is not the schema's JSON") from None
    if r.status == "incomplete":
        raise Skip("hit max_output_tokens")
    need(isinstance(r.output_parsed, Answer), "output_parsed missing")
    need(dump(r)["text"]["format"]["type"] == "json_schema", "text.format not echoed")


@check("responses.stored_chain")
def responses_stored_chain(c):
    try:
        r1 = c.o.responses.create(model=c.model, max_output_tokens=c.mt, store=True, input="My code is 4711.")
    except openai.BadRequestError as e:
        raise Skip(f"store refused: {str(e)[:100]}") from None
    if dump(r1).get("store") is not True:
        try:
            c.o.responses.create(model=c.model, max_output_tokens=c.mt, input="And?", previous_response_id=r1.id)
        except openai.APIStatusError as e:
            need(e.status_code in (400, 404), f"status {e.status_code}")
            raise Skip("storage is off: store echoed false, previous_response_id refused cleanly") from None
        raise Fail("store echoed false, yet previous_response_id accepted silently")
    r2 = c.o.responses.create(
        model=c.model, max_output_tokens=c.mt, store=True, input="What is my code?", previous_response_id=r1.id
    )
    d2 = dump(r2)
    none_wrong(validate_response_object(d2))
    need(d2["previous_response_id"] == r1.id, "previous_response_id not echoed")
    need(
        d2["usage"]["input_tokens"] > dump(r1)["usage"]["input_tokens"],
        "second turn has no more input tokens than the first",
    )
    got = c.o.responses.retrieve(r1.id)
    need(got.id == r1.id and got.output == r1.output, "retrieve differs")
    items = c.o.responses.input_items.list(r2.id)
    need(items.data and items.object == "list", "input_items empty")
    c.o.responses.delete(r1.id)
    try:
        c.o.responses.retrieve(r1.id)
        raise Fail("deleted response still retrievable")
    except openai.NotFoundError:
        pass


@check("responses.unknown_ids")
def responses_unknown_ids(c):
    try:
        c.o.responses.retrieve("resp_doesnotexist0000")
        raise Fail("retrieve of an unknown id succeeded")
    except openai.APIStatusError as e:
        need(e.status_code in (404, 400), f"status {e.status_code}")
        if e.status_code == 400:
            c.note("unknown response id gives 400 (storage off?)")
    try:
        c.o.responses.create(**rkw(c, input="hi", previous_response_id="resp_doesnotexist0000"))
        raise Fail("unknown previous_response_id accepted")
    except openai.APIStatusError as e:
        need(e.status_code in (400, 404), f"status {e.status_code}")
        need(e.param == "previous_response_id", f"param {e.param!r}")


@check("responses.hosted_tools_policy")
def responses_hosted_tools_policy(c):
    try:
        r = c.o.responses.with_raw_response.create(**rkw(c, input="hi", tools=[{"type": "web_search"}, FN_RESP]))
        c.note(
            "web_search accepted (dropped or served): "
            + str({k: v for k, v in r.headers.items() if "tool" in k or "warning" in k})
        )
        none_wrong(validate_response_object(json.loads(raw_text(r))))
    except openai.BadRequestError as e:
        need(str(e.param or "").startswith("tools"), f"refusal lacks param tools*: {e.param!r}")
    try:
        c.o.responses.create(
            **rkw(
                c,
                input="hi",
                tools=[{"type": "code_interpreter", "container": {"type": "auto"}}],
                tool_choice={"type": "code_interpreter"},
            )
        )
        c.note("forced code_interpreter accepted")
    except openai.BadRequestError:
        pass


@check("responses.input_tokens")
def responses_input_tokens(c):
    r = refused(lambda: c.o.responses.input_tokens.count(model=c.model, input="hello world"))
    need(r.input_tokens > 0 and r.object == "response.input_tokens", str(r))


@check("responses.background_policy")
def responses_background_policy(c):
    try:
        r = c.o.responses.create(model=c.model, max_output_tokens=c.mt, input="hi", background=True, store=True)
        need(r.status in ("queued", "in_progress", "completed"), f"status {r.status}")
    except openai.BadRequestError as e:
        need(e.param in ("background", "store"), f"param {e.param!r}")
