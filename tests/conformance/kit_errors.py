"""The kit's checks of errors, over HTTP with the official SDKs."""

from __future__ import annotations

import re

import anthropic
import openai

from tests.conformance.check_messages import validate_error_body
from tests.conformance.check_responses import validate_responses_stream
from tests.conformance.client import (
    Checks,
    Fail,
    Skip,
    need,
    none_wrong,
    split_done,
)
from tests.conformance.kit_messages import akw
from tests.conformance.kit_responses import rkw

check = Checks()


def expect(exc, f, status=None):
    try:
        f()
    except exc as e:
        if status and e.status_code != status:
            raise Fail(f"{type(e).__name__} with status {e.status_code}, want {status}") from None
        return e
    except Exception as e:
        raise Fail(f"got {type(e).__name__}: {str(e)[:120]}, want {exc.__name__}") from e
    raise Fail(f"no error, want {exc.__name__}")


@check("errors.auth")
def errors_auth(c):
    if c.a.no_auth:
        raise Skip("--no-auth")
    options = {"max_retries": 0, "timeout": c.a.timeout}
    with openai.OpenAI(base_url=c.root + "/v1", api_key="sk-wrong-key", **options) as bad:
        expect(
            openai.AuthenticationError,
            lambda: bad.chat.completions.create(model=c.model, messages=[{"role": "user", "content": "x"}]),
        )
        expect(openai.AuthenticationError, lambda: bad.responses.create(model=c.model, input="x"))
    with anthropic.Anthropic(base_url=c.root, api_key="wrong-key", **options) as bad:
        e = expect(
            anthropic.AuthenticationError,
            lambda: bad.messages.create(**akw(c, messages=[{"role": "user", "content": "x"}])),
        )
    none_wrong(validate_error_body("anthropic", 401, e.body))
    need(e.request_id, "no request-id header on the error")
    st, _h, js, _r = c.raw.call("POST", "/v1/chat/completions", {"model": c.model, "messages": []}, key="sk-wrong")
    need(st == 401, f"status {st}")
    none_wrong(validate_error_body("openai", st, js or {}))


@check("errors.model_not_found")
def errors_model_not_found(c):
    e = expect(
        openai.NotFoundError,
        lambda: c.o.chat.completions.create(model="no-such-model", messages=[{"role": "user", "content": "x"}]),
    )
    need(e.code == "model_not_found", f"code {e.code!r}")
    expect(openai.NotFoundError, lambda: c.o.responses.create(model="no-such-model", input="x"))
    e = expect(
        anthropic.NotFoundError,
        lambda: c.an.messages.create(model="no-such-model", max_tokens=8, messages=[{"role": "user", "content": "x"}]),
    )
    none_wrong(validate_error_body("anthropic", 404, e.body))
    need(e.type == "not_found_error", f"type {e.type}")


@check("errors.bad_request")
def errors_bad_request(c):
    for path, body, dialect in (
        ("/v1/chat/completions", {"model": c.model}, "openai"),
        (
            "/v1/chat/completions",
            {"model": c.model, "messages": [{"role": "user", "content": "x"}], "temperature": "hot"},
            "openai",
        ),
        ("/v1/chat/completions", b"{not json", "openai"),
        ("/v1/chat/completions", b"[1]", "openai"),
        ("/v1/responses", {"model": c.model, "input": 5}, "openai"),
        ("/v1/responses", {"model": c.model, "input": [{"type": "no_such_item"}]}, "openai"),
        ("/v1/messages", {"model": c.model, "messages": [{"role": "user", "content": "x"}]}, "anthropic"),
        (
            "/v1/messages",
            {"model": c.model, "max_tokens": 0, "messages": [{"role": "user", "content": "x"}]},
            "anthropic",
        ),
        ("/v1/messages", {"model": c.model, "max_tokens": 8, "messages": []}, "anthropic"),
        ("/v1/messages", b"{", "anthropic"),
    ):
        st, _h, js, _raw = c.raw.call("POST", path, body, dialect)
        need(st == 400, f"{path} {str(body)[:60]} -> {st}, want 400")
        none_wrong([f"{path} {str(body)[:50]}: {x}" for x in validate_error_body(dialect, st, js or {})])
    expect(
        openai.BadRequestError,
        lambda: c.o.chat.completions.create(model=c.model, messages=[], extra_body={"messages": 3}),
    )
    expect(anthropic.BadRequestError, lambda: c.an.messages.create(**akw(c, messages=[])))


@check("errors.stream_flag_errors_before_200")
def errors_stream_flag_errors_before_200(c):
    st, _, _, _, err = c.raw.sse(
        "/v1/messages",
        {"model": "no-such-model", "max_tokens": 8, "stream": True, "messages": [{"role": "user", "content": "x"}]},
        "anthropic",
    )
    need(st == 404, f"messages stream: status {st}")
    none_wrong(validate_error_body("anthropic", 404, err))
    st, _h, _ev, _, err = c.raw.sse("/v1/responses", {"model": "no-such-model", "stream": True, "input": "x"})
    need(st == 404, f"responses stream: status {st}")
    none_wrong(validate_error_body("openai", 404, err))


@check("errors.unknown_path_and_method")
def errors_unknown_path_and_method(c):
    st, _, js, _r = c.raw.call("POST", "/v1/no/such", {})
    need(st == 404, f"status {st}")
    none_wrong(validate_error_body("openai", 404, js or {}))
    st, _, js, _r = c.raw.call("POST", "/v1/messages/no_such", {}, "anthropic")
    need(st == 404, f"status {st}")
    none_wrong(validate_error_body("anthropic", 404, js or {}))
    st, _h, js, _r = c.raw.call("GET", "/v1/chat/completions")
    need(st in (404, 405), f"GET chat -> {st}")


@check("errors.orphan_tool_result")
def errors_orphan_tool_result(c):
    st, _h, js, _r = c.raw.call(
        "POST",
        "/v1/messages",
        akw(
            c,
            messages=[
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_nope", "content": "x"}]}
            ],
        ),
        "anthropic",
    )
    need(st in (200, 400), f"status {st}")
    if st == 400:
        none_wrong(validate_error_body("anthropic", st, js))
    else:
        c.note("orphan tool_result accepted")


@check("errors.context_too_long")
def errors_context_too_long(c):
    if not c.a.long:
        raise Skip("pass --long N (characters) to try")
    big = "word " * (c.a.long // 5)
    e = expect(
        openai.BadRequestError,
        lambda: c.o.chat.completions.create(
            model=c.model, max_completion_tokens=8, messages=[{"role": "user", "content": big}]
        ),
    )
    need(e.code == "context_length_exceeded", f"code {e.code!r}")
    e = expect(
        anthropic.BadRequestError, lambda: c.an.messages.create(**akw(c, messages=[{"role": "user", "content": big}]))
    )
    need("too long" in str(e), "Claude Code looks for 'prompt is too long' in the message")


@check("errors.rate_limit")
def errors_rate_limit(c):
    if not c.a.ratelimit_key:
        raise Skip("pass --ratelimit-key KEY (a key whose quota is spent)")
    o = openai.OpenAI(base_url=c.root + "/v1", api_key=c.a.ratelimit_key, max_retries=0, timeout=c.a.timeout)
    a = anthropic.Anthropic(base_url=c.root, api_key=c.a.ratelimit_key, max_retries=0, timeout=c.a.timeout)
    last = None
    for _i in range(20):
        try:
            o.chat.completions.create(
                model=c.model, max_completion_tokens=2, messages=[{"role": "user", "content": "x"}]
            )
        except openai.RateLimitError as e:
            last = e
            break
    need(last, "20 calls, no RateLimitError")
    ra = last.response.headers.get("retry-after")
    need(ra and re.fullmatch(r"\d+(\.\d+)?", ra), f"retry-after {ra!r}")
    e = expect(
        anthropic.RateLimitError, lambda: a.messages.create(**akw(c, messages=[{"role": "user", "content": "x"}]))
    )
    need(e.type == "rate_limit_error", f"type {e.type}")
    need(e.response.headers.get("retry-after"), "no retry-after (anthropic)")


@check("errors.faults")
def errors_faults(c):
    if not c.a.fault_header:
        raise Skip("pass --fault-header NAME if the gateway or its engine has a fault hook")
    h = c.a.fault_header
    e = expect(
        anthropic.OverloadedError,
        lambda: c.an.messages.create(
            **akw(c, messages=[{"role": "user", "content": "x"}], extra_headers={h: "overloaded"})
        ),
    )
    none_wrong(validate_error_body("anthropic", 529, e.body))
    e = expect(
        openai.InternalServerError,
        lambda: c.o.chat.completions.create(
            model=c.model, messages=[{"role": "user", "content": "x"}], extra_headers={h: "overloaded"}
        ),
    )
    need(e.status_code == 503, f"overload on OpenAI dialect gives {e.status_code}, want 503")
    # upstream cut in the middle of a stream
    _, _, ev, _, _ = c.raw.sse(
        "/v1/chat/completions",
        {"model": c.model, "stream": True, "messages": [{"role": "user", "content": "x"}]},
        extra={h: "midstream"},
    )
    ev, _done = split_done(ev)
    need(any("error" in d for _, d in ev), "chat: no data:{error} after a cut")
    need(
        not any(ch.get("finish_reason") == "stop" for _, d in ev for ch in d.get("choices") or []),
        "chat: cut reported as finish_reason stop",
    )
    _, _, ev, _, _ = c.raw.sse("/v1/responses", rkw(c, input="x", stream=True), extra={h: "midstream"})
    ev, _ = split_done(ev)
    need(ev[-1][1]["type"] == "response.failed", f"responses: last event {ev[-1][1]['type']}")
    none_wrong(validate_responses_stream(ev))
    _st, _hd, ev, _, _err = c.raw.sse(
        "/v1/messages",
        akw(c, stream=True, messages=[{"role": "user", "content": "x"}]),
        "anthropic",
        extra={h: "midstream"},
    )
    ev, _ = split_done(ev)
    need(
        ev[-1][0] == "error" and ev[-1][1]["error"]["type"] in ("api_error", "overloaded_error"),
        f"messages: last event {ev[-1]}",
    )
    need(not any(n == "message_stop" for n, _ in ev), "messages: message_stop after a cut")
