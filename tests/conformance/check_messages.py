"""Checks of Messages answers and of error bodies, on plain dicts. Each returns a list of what is wrong."""

from __future__ import annotations

import re

import anthropic.types as at

from tests.conformance.models import ANTHROPIC_ERRORS, MESSAGES_EVENTS, STOP_REASONS, is_json_object, strict


def validate_message_object(m):
    e = strict(at.Message, m)
    if not str(m.get("id", "")).startswith("msg_"):
        e.append(f"id {m.get('id')!r} lacks msg_ prefix")
    if m.get("type") != "message" or m.get("role") != "assistant":
        e.append("type/role")
    if m.get("stop_reason") not in STOP_REASONS:
        e.append(f"stop_reason {m.get('stop_reason')!r}")
    if "stop_sequence" not in m:
        e.append("key stop_sequence absent (send null)")
    if m.get("stop_reason") == "stop_sequence" and not m.get("stop_sequence"):
        e.append("stop_reason stop_sequence without stop_sequence")
    has_tool = False
    for i, b in enumerate(m.get("content") or []):
        if b.get("type") == "tool_use":
            has_tool = True
            if not re.fullmatch(r"[A-Za-z0-9_-]+", b.get("id") or ""):
                e.append(f"content[{i}] tool_use id {b.get('id')!r} (allowed: letters, digits, _ and -)")
            if not isinstance(b.get("input"), dict):
                e.append(f"content[{i}] tool_use input is not an object")
        if b.get("type") == "thinking" and not isinstance(b.get("signature"), str):
            e.append(f"content[{i}] thinking without a signature string")
    if has_tool and m.get("stop_reason") not in ("tool_use", "max_tokens", "refusal"):
        e.append(f"tool_use block with stop_reason {m.get('stop_reason')!r}")
    if m.get("stop_reason") == "tool_use" and not has_tool:
        e.append("stop_reason tool_use without a tool_use block")
    u = m.get("usage") or {}
    for k in ("input_tokens", "output_tokens"):
        if not isinstance(u.get(k), int) or u.get(k) < 0:
            e.append(f"usage.{k} {u.get(k)!r}")
    return e


def validate_messages_stream(events):
    """events: list of (sse_event_name, payload dict) in order; pings allowed anywhere."""
    e, cur, seen, started, delta, stopped, kinds, argbuf, sig = [], None, 0, False, None, False, [], {}, {}
    for k, (name, ev) in enumerate(events):
        t = ev.get("type")
        if name != t:
            e.append(f"event {k}: SSE name {name!r} != type {t!r} (the SDK drops unnamed events)")
        if t == "ping":
            continue
        if t == "error":
            e.append(f"event {k}: error {ev.get('error')}")
            return e
        cls = MESSAGES_EVENTS.get(t)
        if cls is None:
            e.append(f"event {k}: unknown type {t!r}")
            continue
        if t == "content_block_start" and (ev.get("content_block") or {}).get("type") == "thinking":
            probe = dict(
                ev, content_block={**ev["content_block"], "signature": ev["content_block"].get("signature", "")}
            )
            e += strict(cls, probe, f"event {k} {t}: ")
            if "signature" not in ev["content_block"]:
                e.append(f'event {k}: thinking block start without signature key (send "")')
        else:
            e += strict(cls, ev, f"event {k} {t}: ")
        if stopped:
            e.append(f"event {k} {t}: after message_stop")
        if t == "message_start":
            if started:
                e.append("second message_start")
            started = True
            m = ev.get("message") or {}
            if m.get("content") != []:
                e.append("message_start.content must be []")
            for f in ("id", "type", "role", "model", "usage"):
                if f not in m:
                    e.append(f"message_start.message.{f} absent")
            for f in ("stop_reason", "stop_sequence"):
                if f not in m or m[f] is not None:
                    e.append(f"message_start.message.{f} must be null")
        elif not started:
            e.append(f"event {k} {t}: before message_start")
        if t == "content_block_start":
            if cur is not None:
                e.append(f"event {k}: block {ev.get('index')} starts while {cur} is open")
            if ev.get("index") != seen:
                e.append(f"event {k}: block index {ev.get('index')}, want {seen}")
            cur, seen = ev.get("index"), seen + 1
            b = ev.get("content_block") or {}
            kinds.append(b.get("type"))
            if b.get("type") == "text" and b.get("text") != "":
                e.append(f"event {k}: text block starts non-empty")
            if b.get("type") == "tool_use":
                if b.get("input") != {}:
                    e.append(f"event {k}: tool_use must start with input {{}}")
                argbuf[cur] = ""
        elif t == "content_block_delta":
            if ev.get("index") != cur:
                e.append(f"event {k}: delta for block {ev.get('index')}, open is {cur}")
            d = ev.get("delta") or {}
            want = {
                "text": ("text_delta", "citations_delta"),
                "thinking": ("thinking_delta", "signature_delta"),
                "tool_use": ("input_json_delta",),
            }.get(kinds[-1] if kinds else None, ())
            if d.get("type") not in want:
                e.append(f"event {k}: {d.get('type')} in a {kinds[-1] if kinds else None} block")
            if d.get("type") == "input_json_delta":
                argbuf[cur] = argbuf.get(cur, "") + (d.get("partial_json") or "")
            if d.get("type") == "signature_delta":
                if sig.get(cur):
                    e.append(f"event {k}: second signature_delta")
                sig[cur] = True
            elif d.get("type") == "thinking_delta" and sig.get(cur):
                e.append(f"event {k}: thinking_delta after signature_delta")
        elif t == "content_block_stop":
            if ev.get("index") != cur:
                e.append(f"event {k}: stop for block {ev.get('index')}, open is {cur}")
            if kinds and kinds[-1] == "thinking" and not sig.get(cur):
                e.append(f"event {k}: thinking block {cur} closes without a signature_delta")
            cur = None
        elif t == "message_delta":
            if cur is not None:
                e.append(f"event {k}: message_delta while block {cur} open")
            if delta is not None:
                e.append("second message_delta")
            delta = ev
            d = ev.get("delta") or {}
            if d.get("stop_reason") not in STOP_REASONS:
                e.append(f"message_delta stop_reason {d.get('stop_reason')!r}")
            if "stop_sequence" not in d:
                e.append("message_delta.delta.stop_sequence absent (send null)")
            if not isinstance((ev.get("usage") or {}).get("output_tokens"), int):
                e.append("message_delta.usage.output_tokens missing")
            if d.get("stop_reason") == "tool_use":
                if "tool_use" not in kinds:
                    e.append("stop_reason tool_use without tool_use block")
                for i, a in argbuf.items():
                    if a.strip() and not is_json_object(a):
                        e.append(f"block {i}: tool input not a JSON object: {a!r:.80}")
            elif "tool_use" in kinds and d.get("stop_reason") not in ("max_tokens", "refusal"):
                e.append(f"tool_use block but stop_reason {d.get('stop_reason')!r}")
        elif t == "message_stop":
            stopped = True
            if delta is None:
                e.append("message_stop without message_delta")
    if not stopped:
        e.append("stream ends without message_stop")
    return e


def validate_error_body(dialect, status, body):
    e = []
    if dialect == "anthropic":
        if body.get("type") != "error" or not isinstance(body.get("error"), dict):
            return [f"not an Anthropic error envelope: {str(body)[:120]}"]
        err = body["error"]
        if not isinstance(err.get("message"), str) or not err.get("message"):
            e.append("error.message empty")
        want = ANTHROPIC_ERRORS.get(status)
        if want and err.get("type") != want:
            e.append(f"status {status} with error.type {err.get('type')!r}, want {want!r}")
        if "request_id" not in body:
            e.append("request_id absent from error body")
    else:
        err = body.get("error")
        if not isinstance(err, dict):
            return [f"not an OpenAI error envelope: {str(body)[:120]}"]
        e += [f"error.{k} absent" for k in ("message", "type", "param", "code") if k not in err]
        if err.get("code") is not None and not isinstance(err["code"], str):
            e.append(f"error.code is {type(err['code']).__name__}, must be string or null")
    return e
