"""Checks of Responses answers, whole and streamed, on plain dicts. Each returns a list of what is wrong."""

from __future__ import annotations

import openai
from openai.types.responses import Response as OAResponse

from tests.conformance.models import RESPONSES_EVENTS, TERMINAL_RESPONSES, is_json_object, strict


def validate_response_object(r, final=True):
    e = strict(OAResponse, r)
    if not str(r.get("id", "")).startswith("resp_"):
        e.append(f"id {r.get('id')!r} lacks resp_ prefix")
    if r.get("object") != "response":
        e.append("object is not 'response'")
    for k in (
        "created_at",
        "status",
        "model",
        "output",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "metadata",
        "error",
        "incomplete_details",
        "instructions",
        "temperature",
        "top_p",
        "text",
        "truncation",
        "usage",
        "previous_response_id",
        "reasoning",
        "store",
        "max_output_tokens",
    ):
        if k not in r:
            e.append(f"key {k!r} absent (send null rather than omit)")
    st = r.get("status")
    if final:
        if st not in ("completed", "incomplete", "failed", "cancelled", "queued", "in_progress"):
            e.append(f"status {st!r}")
        if st == "incomplete" and not r.get("incomplete_details"):
            e.append("incomplete without incomplete_details")
        if st == "failed" and not r.get("error"):
            e.append("failed without error")
        if st == "completed" and (r.get("error") or r.get("incomplete_details")):
            e.append("completed with error/incomplete_details")
        u = r.get("usage")
        if st in ("completed", "incomplete"):
            if not u:
                e.append("usage missing on a finished response")
            elif (
                isinstance(u, dict)
                and {"input_tokens", "output_tokens", "total_tokens"} <= set(u)
                and u["input_tokens"] + u["output_tokens"] != u["total_tokens"]
            ):
                e.append("usage does not add up")
    ids = []
    for i, it in enumerate(r.get("output") or []):
        t = it.get("type")
        ids.append(it.get("id"))
        if not it.get("id"):
            e.append(f"output[{i}] ({t}) has no id")
        if t == "message":
            if it.get("role") != "assistant" or it.get("status") not in ("completed", "incomplete", "in_progress"):
                e.append(f"output[{i}] message role/status")
            for p in it.get("content") or []:
                if p.get("type") == "output_text" and not isinstance(p.get("annotations"), list):
                    e.append(f"output[{i}] output_text without annotations list")
        if t in ("function_call", "custom_tool_call") and (not it.get("call_id") or not it.get("name")):
            e.append(f"output[{i}] {t} lacks call_id or name")
        if t == "function_call" and st == "completed" and not is_json_object(it.get("arguments")):
            e.append(f"output[{i}] arguments not a JSON object: {it.get('arguments')!r:.80}")
        if t == "reasoning" and "summary" not in it:
            e.append(f"output[{i}] reasoning without summary list")
    if len(set(ids)) != len(ids):
        e.append("output item ids repeat")
    return e


def validate_responses_stream(events):
    """events: list of (sse_event_name_or_None, payload dict) in order."""
    e = []
    if not events:
        return ["no events"]
    items, parts, args, texts, sums = {}, {}, {}, {}, {}
    done_items, rid, terminal, once, nprog = {}, None, None, set(), 0
    want_seq = events[0][1].get("sequence_number")
    if want_seq not in (0, 1):
        e.append(f"first sequence_number {want_seq!r} (0 expected)")
    if events[0][1].get("type") != "response.created":
        e.append(f"first event is {events[0][1].get('type')}, not response.created")
    for k, (name, ev) in enumerate(events):
        t = ev.get("type")
        if name is not None and name != t:
            e.append(f"event {k}: SSE name {name!r} != type {t!r}")
        if name is None and not any("'event:' line" in x for x in e):
            e.append(f"{sum(n is None for n, _ in events)} of {len(events)} events have no 'event:' line")
        cls = RESPONSES_EVENTS.get(t)
        if cls is None:
            e.append(f"event {k}: unknown type {t!r} for openai {openai.__version__}")
        else:
            e += strict(cls, ev, f"event {k} {t}: ")
        if ev.get("sequence_number") != want_seq:
            e.append(f"event {k} {t}: sequence_number {ev.get('sequence_number')} want {want_seq}")
            want_seq = ev.get("sequence_number") if isinstance(ev.get("sequence_number"), int) else want_seq
        want_seq = (want_seq or 0) + 1
        if terminal:
            e.append(f"event {k} {t}: after terminal {terminal}")
        if "response" in ev and isinstance(ev["response"], dict):
            if rid is None:
                rid = ev["response"].get("id")
            elif ev["response"].get("id") != rid:
                e.append(f"event {k} {t}: response id changes")
        oi, iid = ev.get("output_index"), ev.get("item_id")
        if t == "response.created" and k:
            e.append(f"event {k}: second response.created")
        if t == "response.in_progress":
            nprog += 1
            if nprog == 1 and k != 1:
                e.append(f"event {k}: response.in_progress is not the second event")
        if t.endswith((".done", "part.added")):
            key = (t, oi, ev.get("content_index"), ev.get("summary_index"))
            if key in once:
                e.append(f"event {k}: {t} repeated")
            once.add(key)
        if t == "response.output_item.added":
            it = ev.get("item") or {}
            if oi in items and oi is not None:
                e.append(f"event {k}: output_index {oi} added twice")
            if oi != len(items):
                e.append(f"event {k}: output_index {oi}, next free is {len(items)}")
            items[oi] = it
            if it.get("type") == "message" and it.get("content") not in ([], None):
                e.append(f"event {k}: message added with non-empty content")
            if it.get("type") == "function_call" and it.get("arguments") not in ("", None):
                e.append(f"event {k}: function_call added with non-empty arguments")
            if it.get("type") in ("message", "function_call") and it.get("status") != "in_progress":
                e.append(f"event {k}: added item status {it.get('status')!r}")
            continue
        if oi is not None and t != "response.output_item.done":
            if oi not in items:
                e.append(f"event {k} {t}: output_index {oi} not opened")
                continue
            if oi in done_items:
                e.append(f"event {k} {t}: item {oi} already done")
            if iid is not None and iid != items[oi].get("id"):
                e.append(f"event {k} {t}: item_id {iid} != {items[oi].get('id')}")
        if t == "response.content_part.added":
            ci = ev.get("content_index")
            if (oi, ci) in parts:
                e.append(f"event {k}: content part {oi}/{ci} added twice")
            parts[(oi, ci)] = "open"
            texts.setdefault((oi, ci), "")
        elif t in ("response.output_text.delta", "response.refusal.delta", "response.reasoning_text.delta"):
            ci = ev.get("content_index")
            if parts.get((oi, ci)) != "open" and t != "response.reasoning_text.delta":
                e.append(f"event {k} {t}: content part {oi}/{ci} not open")
            texts[(oi, ci)] = texts.get((oi, ci), "") + (ev.get("delta") or "")
        elif t in ("response.output_text.done", "response.reasoning_text.done"):
            ci = ev.get("content_index")
            if ev.get("text") != texts.get((oi, ci), ""):
                e.append(f"event {k} {t}: text != concatenated deltas")
        elif t == "response.content_part.done":
            ci = ev.get("content_index")
            kind = (ev.get("part") or {}).get("type")
            dn = {
                "output_text": "response.output_text.done",
                "refusal": "response.refusal.done",
                "reasoning_text": "response.reasoning_text.done",
            }.get(kind)
            if dn and (dn, oi, ci, None) not in once:
                e.append(f"event {k}: content part {oi}/{ci} done without {dn}")
            if kind == "output_text" and (ev["part"].get("text") or "") != texts.get((oi, ci), ""):
                e.append(f"event {k}: part text != deltas")
            parts[(oi, ci)] = "done"
        elif t == "response.reasoning_summary_part.added":
            sums[(oi, ev.get("summary_index"))] = ""
        elif t == "response.reasoning_summary_text.delta":
            key = (oi, ev.get("summary_index"))
            if key not in sums:
                e.append(f"event {k}: summary delta before summary part")
            sums[key] = sums.get(key, "") + (ev.get("delta") or "")
        elif t == "response.reasoning_summary_part.done":
            if ("response.reasoning_summary_text.done", oi, None, ev.get("summary_index")) not in once:
                e.append(f"event {k}: summary part done before its text.done")
        elif t == "response.reasoning_summary_text.done":
            if ev.get("text") != sums.get((oi, ev.get("summary_index")), ""):
                e.append(f"event {k}: summary text != deltas")
        elif t == "response.function_call_arguments.delta" or t == "response.custom_tool_call_input.delta":
            args[oi] = args.get(oi, "") + (ev.get("delta") or "")
        elif t == "response.function_call_arguments.done":
            if ev.get("arguments") != args.get(oi, ""):
                e.append(f"event {k}: arguments.done != deltas")
            args[("done", oi)] = True
        elif t == "response.custom_tool_call_input.done":
            if ev.get("input") != args.get(oi, ""):
                e.append(f"event {k}: custom input.done != deltas")
            args[("done", oi)] = True
        elif t == "response.output_item.done":
            it = ev.get("item") or {}
            if oi not in items:
                e.append(f"event {k}: item {oi} done, never added")
                continue
            if it.get("id") != items[oi].get("id") or it.get("type") != items[oi].get("type"):
                e.append(f"event {k}: item {oi} identity changed")
            if it.get("call_id") != items[oi].get("call_id"):
                e.append(f"event {k}: item {oi} call_id changed")
            if it.get("type") == "function_call":
                if not args.get(("done", oi)):
                    e.append(f"event {k}: function_call item done without arguments.done")
                if it.get("arguments") != args.get(oi, ""):
                    e.append(f"event {k}: item arguments != deltas")
            for o, si in sums:
                for need_t in ("response.reasoning_summary_text.done", "response.reasoning_summary_part.done"):
                    if o == oi and (need_t, oi, None, si) not in once:
                        e.append(f"event {k}: reasoning item done without {need_t}")
            if it.get("type") == "message":
                got = "".join(p.get("text") or p.get("refusal") or "" for p in it.get("content") or [])
                exp = "".join(v for (o, _), v in sorted(texts.items()) if o == oi)
                if got != exp:
                    e.append(f"event {k}: message item text != deltas")
            for (o, ci), st in parts.items():
                if o == oi and st != "done":
                    e.append(f"event {k}: item {oi} done while part {ci} open")
            done_items[oi] = it
        elif t in TERMINAL_RESPONSES:
            terminal = t
            if not nprog:
                e.append(f"event {k}: no response.in_progress before {t}")
            r = ev.get("response") or {}
            e += [f"event {k} {t}: {x}" for x in validate_response_object(r)]
            if r.get("status") != t.split(".")[1]:
                e.append(f"event {k}: {t} with status {r.get('status')!r}")
            if t == "response.completed":
                if set(done_items) != set(items):
                    e.append(f"event {k}: items {sorted(set(items) - set(done_items))} never done")
                want = [done_items[o].get("id") for o in sorted(done_items)]
                got = [x.get("id") for x in r.get("output") or []]
                if want != got:
                    e.append(f"event {k}: final output ids {got} != streamed {want}")
        elif t == "error":
            terminal = "error"
    if terminal not in TERMINAL_RESPONSES:
        e.append(f"stream ends without a terminal response.* event (last: {events[-1][1].get('type')})")
    return e
