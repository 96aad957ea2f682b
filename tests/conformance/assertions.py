"""What a translation vector expects, checked on what a client got.

Assertions are [path, op, value]; a path looks like a.b[0].c ("" is the whole).
"""

from __future__ import annotations

import json
import re

from tests.conformance.check_chat import validate_chat_stream
from tests.conformance.check_messages import validate_messages_stream
from tests.conformance.check_responses import validate_responses_stream
from tests.conformance.models import TERMINAL_RESPONSES

MISSING = object()


def get(obj, path):
    for name, idx in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path):
        try:
            obj = obj[int(idx)] if idx else obj[name]
        except (KeyError, IndexError, TypeError):
            return MISSING
    return obj


def test(obj, a):
    path, op, val = a
    x = get(obj, path)
    flat = "" if x is MISSING else (x if isinstance(x, str) else json.dumps(x, ensure_ascii=False))
    ok = {
        "eq": lambda: x == val,
        "ne": lambda: x != val,
        "absent": lambda: x is MISSING,
        "absent_or_null": lambda: x is MISSING or x is None,
        "present": lambda: x is not MISSING,
        "contains": lambda: x is not MISSING and x is not None and val in x,
        "not_contains": lambda: x is MISSING or val not in x,
        "flat_contains": lambda: val in flat,
        "flat_not_contains": lambda: val not in flat,
        "regex": lambda: isinstance(x, str) and re.search(val, x) is not None,
        "len": lambda: x is not MISSING and x is not None and len(x) == val,
        "gte": lambda: x is not MISSING and x >= val,
        "lte": lambda: x is not MISSING and x <= val,
        "in": lambda: x in val,
        "type": lambda: type(x).__name__ == val,
        "type_in": lambda: type(x).__name__ in val,
        "json_eq": lambda: isinstance(x, str) and json.loads(x) == val,
    }[op]()
    return (
        None
        if ok
        else f"{path} {op} {val!r}: got {'(absent)' if x is MISSING else json.dumps(x, ensure_ascii=False)[:120]}"
    )


def collapse(types):
    out = []
    for t in types:
        if not out or out[-1] != t:
            out.append(t)
    return out


def summarise(dialect, events, done=True):
    """events: [(name, payload)] -> dict with text, reasoning, tools, custom, finish, usage, types, ..."""
    s = {
        "text": "",
        "reasoning": "",
        "tools": [],
        "custom": [],
        "finish": None,
        "usage": None,
        "types": [d.get("type") for _, d in events],
        "error": None,
        "keys": set(),
        "blocks": [],
        "events": events,
    }
    if dialect == "chat":
        tools = {}
        for _, c in events:
            if "error" in c:
                s["error"] = c["error"]
            if c.get("usage"):
                s["usage"] = c["usage"]
            s["model"] = c.get("model")
            for ch in c.get("choices") or []:
                if ch.get("index") != 0:
                    continue
                d = ch.get("delta") or {}
                s["keys"] |= {k for k, v in d.items() if v}
                s["text"] += d.get("content") or ""
                s["reasoning"] += d.get("reasoning_content") or d.get("reasoning") or ""
                for t in d.get("tool_calls") or []:
                    b = tools.setdefault(t["index"], {"name": "", "arguments": "", "id": None})
                    b["id"] = b["id"] or t.get("id")
                    b["name"] += (t.get("function") or {}).get("name") or ""
                    b["arguments"] += (t.get("function") or {}).get("arguments") or ""
                s["finish"] = ch.get("finish_reason") or s["finish"]
        s["tools"] = [tools[i] for i in sorted(tools)]
    elif dialect == "messages":
        blocks, args = [], {}
        for _, d in events:
            t = d.get("type")
            if t == "message_start":
                s["usage"], s["model"] = dict(d["message"]["usage"]), d["message"]["model"]
            elif t == "content_block_start":
                blocks.append(dict(d["content_block"]))
            elif t == "content_block_delta":
                x = d["delta"]
                s["text"] += x.get("text", "")
                s["reasoning"] += x.get("thinking", "")
                if x["type"] == "input_json_delta":
                    args[d["index"]] = args.get(d["index"], "") + x["partial_json"]
            elif t == "message_delta":
                s["finish"], s["stop_sequence"] = d["delta"].get("stop_reason"), d["delta"].get("stop_sequence")
                s["usage"] = (s["usage"] or {}) | {k: v for k, v in d["usage"].items() if v is not None}
            elif t == "error":
                s["error"] = d["error"]
        s["blocks"] = [b["type"] for b in blocks]
        s["tools"] = [
            {"name": b["name"], "id": b["id"], "arguments": args.get(i, "") or "{}"}
            for i, b in enumerate(blocks)
            if b["type"] == "tool_use"
        ]
    else:
        for _, d in events:
            t = d.get("type")
            if t == "response.output_text.delta":
                s["text"] += d["delta"]
            elif t in ("response.reasoning_summary_text.delta", "response.reasoning_text.delta"):
                s["reasoning"] += d["delta"]
            elif t in TERMINAL_RESPONSES:
                r = d["response"]
                s["finish"], s["usage"], s["error"], s["model"] = (
                    r["status"],
                    r.get("usage"),
                    r.get("error"),
                    r.get("model"),
                )
                s["tools"] = [x for x in r["output"] if x["type"] == "function_call"]
                s["tools"] = [
                    {
                        "name": x["name"],
                        "arguments": x["arguments"],
                        "id": x["call_id"],
                        "namespace": x.get("namespace"),
                    }
                    for x in s["tools"]
                ]
                s["custom"] = [
                    {"name": x["name"], "input": x["input"]} for x in r["output"] if x["type"] == "custom_tool_call"
                ]
    return s


def jl(x):
    try:
        return json.loads(x)
    except ValueError:
        return x


def check_stream(v, events, done, include_usage):
    e, x, dia = [], v["expect"]["stream"], v["dialect_in"]
    s = summarise(dia, events, done)
    if x.get("valid"):
        if dia == "chat":
            e += validate_chat_stream([d for _, d in events], include_usage=include_usage, n=x.get("n", 1), done=done)
        elif dia == "messages":
            e += validate_messages_stream(events)
        else:
            e += validate_responses_stream(events)
    for k in ("text", "reasoning", "finish", "stop_sequence", "model", "blocks"):
        if k in x and s.get(k) != x[k]:
            e.append(f"{k} {s.get(k)!r}, want {x[k]!r}")
    if "tools" in x:
        if len(s["tools"]) != len(x["tools"]):
            e.append(f"{len(s['tools'])} tool calls, want {len(x['tools'])}: {s['tools']}")
        for g, w in zip(s["tools"], x["tools"], strict=False):
            if (
                g["name"] != w["name"]
                or ("arguments" in w and jl(g["arguments"]) != w["arguments"])
                or ("id" in w and g["id"] != w["id"])
                or ("namespace" in w and g.get("namespace") != w["namespace"])
            ):
                e.append(f"tool {g}, want {w}")
    if "custom" in x and s["custom"] != x["custom"]:
        e.append(f"custom {s['custom']}, want {x['custom']}")
    for k, val in (x.get("usage") or {}).items():
        if (s["usage"] or {}).get(k) != val:
            e.append(f"usage.{k} {(s['usage'] or {}).get(k)!r}, want {val!r}")
    if x.get("usage_present") and not s["usage"]:
        e.append("no usage")
    if x.get("no_usage") and s["usage"]:
        e.append("usage present")
    if "types_collapsed" in x and collapse([t for t in s["types"] if t != "ping"]) != x["types_collapsed"]:
        e.append(f"types {collapse(s['types'])}")
    if "contains_in_order" in x:
        it = iter(s["types"])
        if not all(t in it for t in x["contains_in_order"]):
            e.append("event order differs")
    if "last_type" in x and s["types"][-1] != x["last_type"]:
        e.append(f"last event {s['types'][-1]}")
    for t in x.get("forbid_types", []):
        if t in s["types"]:
            e.append(f"forbidden event {t}")
    if x.get("require_key") and x["require_key"] not in s["keys"]:
        e.append(f"no delta.{x['require_key']}")
    if x.get("has_error_frame") and not s["error"]:
        e.append("no error frame")
    for a in x.get("final", []):
        r = test(events[-1][1], a)
        if r:
            e.append(r)
    return e
