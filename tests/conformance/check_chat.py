"""Checks of Chat answers, whole and streamed, on plain dicts. Each returns a list of what is wrong."""

from __future__ import annotations

from openai.types import CompletionUsage
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from tests.conformance.models import CHAT_FINISH, is_json_object, strict


def validate_usage_openai(u, where="usage"):
    e = strict(CompletionUsage, u, where + ".")
    if not e and u["prompt_tokens"] + u["completion_tokens"] != u["total_tokens"]:
        e.append(f"{where}: prompt+completion != total ({u})")
    d = (u.get("prompt_tokens_details") or {}).get("cached_tokens") or 0
    if not e and d > u["prompt_tokens"]:
        e.append(f"{where}: cached_tokens {d} > prompt_tokens")
    r = (u.get("completion_tokens_details") or {}).get("reasoning_tokens") or 0
    if not e and r > u["completion_tokens"]:
        e.append(f"{where}: reasoning_tokens {r} > completion_tokens")
    return e


def validate_chat_object(c):
    e = strict(ChatCompletion, c)
    if not str(c.get("id", "")).startswith("chatcmpl-"):
        e.append(f"id {c.get('id')!r} lacks chatcmpl- prefix")
    if c.get("object") != "chat.completion":
        e.append(f"object {c.get('object')!r}")
    for i, ch in enumerate(c.get("choices") or []):
        m = ch.get("message") or {}
        tcs = m.get("tool_calls")
        if tcs == []:
            e.append(f"choices[{i}].message.tool_calls is [] (omit it or send null)")
        if ch.get("finish_reason") == "tool_calls" and not tcs:
            e.append(f"choices[{i}] finish_reason tool_calls without tool_calls")
        if tcs and ch.get("finish_reason") not in ("tool_calls", "length", "content_filter", "stop"):
            e.append(f"choices[{i}] tool calls with finish_reason {ch.get('finish_reason')!r}")
        ids = [t.get("id") for t in tcs or []]
        if len(set(ids)) != len(ids) or not all(ids):
            e.append(f"choices[{i}] tool call ids missing or repeated: {ids}")
        for t in tcs or []:
            fn = t.get("function") or {}
            if (
                t.get("type") == "function"
                and ch.get("finish_reason") == "tool_calls"
                and not is_json_object(fn.get("arguments"))
            ):
                e.append(f"choices[{i}] tool arguments not a JSON object: {fn.get('arguments')!r:.80}")
        if "content" not in m:
            e.append(f"choices[{i}].message has no content key")
    if not c.get("usage"):
        e.append("usage missing")
    else:
        e += validate_usage_openai(c["usage"])
    return e


def validate_chat_stream(chunks, include_usage=None, n=1, done=True):
    """chunks: the decoded data payloads in order, without [DONE]; done: whether [DONE] was seen."""
    e = []
    if not done:
        e.append("no [DONE] sentinel")
    if not chunks:
        return [*e, "no chunks"]
    ids, created, model = set(), set(), set()
    state = {}
    usage_chunks = []
    for k, c in enumerate(chunks):
        if "error" in c and "choices" not in c:
            e.append(f"chunk {k} is an error: {str(c['error'])[:120]}")
            continue
        e += strict(ChatCompletionChunk, c, f"chunk {k}: ")
        ids.add(c.get("id"))
        created.add(c.get("created"))
        model.add(c.get("model"))
        if c.get("usage"):
            usage_chunks.append((k, c))
        for ch in c.get("choices") or []:
            s = state.setdefault(
                ch.get("index"), {"role": None, "content": 0, "reasoning": 0, "fin": None, "tools": {}, "order": []}
            )
            d = ch.get("delta") or {}
            payload = (
                d.get("content")
                or d.get("reasoning_content")
                or d.get("reasoning")
                or d.get("tool_calls")
                or d.get("refusal")
            )
            if s["fin"] is not None and payload:
                e.append(f"chunk {k}: delta after finish_reason on choice {ch.get('index')}")
            if d.get("role"):
                if s["role"] is None and (s["content"] or s["reasoning"] or s["tools"]):
                    e.append(f"chunk {k}: role arrives after content")
                s["role"] = d["role"]
            r = d.get("reasoning_content") or d.get("reasoning")
            if r:
                s["reasoning"] += len(r)
                if s["content"]:
                    e.append(f"chunk {k}: reasoning after content on choice {ch.get('index')}")
            if d.get("content"):
                s["content"] += len(d["content"])
            for t in d.get("tool_calls") or []:
                i = t.get("index")
                if not isinstance(i, int):
                    e.append(f"chunk {k}: tool_calls without integer index")
                    continue
                cur = s["tools"].get(i)
                fn = t.get("function") or {}
                if cur is None:
                    if i != len(s["tools"]):
                        e.append(f"chunk {k}: tool index {i} opened out of order")
                    if not t.get("id") or not fn.get("name"):
                        e.append(f"chunk {k}: first delta of tool {i} lacks id or name")
                    s["tools"][i] = {"id": t.get("id"), "name": fn.get("name"), "args": fn.get("arguments") or ""}
                else:
                    if t.get("id") and t["id"] != cur["id"]:
                        e.append(f"chunk {k}: tool {i} changes id")
                    if fn.get("name"):
                        e.append(f"chunk {k}: tool {i} repeats its name (SDKs concatenate names)")
                    cur["args"] += fn.get("arguments") or ""
            if ch.get("finish_reason"):
                if s["fin"]:
                    e.append(f"chunk {k}: second finish_reason on choice {ch.get('index')}")
                s["fin"] = ch["finish_reason"]
    if len(ids) != 1:
        e.append(f"ids differ across chunks: {sorted(map(str, ids))[:3]}")
    if len(model) != 1:
        e.append("model differs across chunks")
    if len(created) != 1:
        e.append("created differs across chunks")
    if not all(str(i).startswith("chatcmpl-") for i in ids):
        e.append(f"id lacks chatcmpl- prefix: {ids}")
    if set(state) != set(range(n)):
        e.append(f"choice indexes seen {sorted(map(str, state))}, want 0..{n - 1}")
    for i, s in state.items():
        if s["role"] != "assistant":
            e.append(f"choice {i}: no role=assistant delta")
        if s["fin"] not in CHAT_FINISH:
            e.append(f"choice {i}: finish_reason {s['fin']!r}")
        for j, t in s["tools"].items():
            if s["fin"] == "tool_calls" and not is_json_object(t["args"]):
                e.append(f"choice {i} tool {j}: arguments not a JSON object: {t['args']!r:.80}")
        if s["fin"] == "tool_calls" and not s["tools"]:
            e.append(f"choice {i}: finish_reason tool_calls and no tool delta")
        if s["tools"] and s["fin"] == "stop":
            e.append(f"choice {i}: tool deltas but finish_reason stop")
    if include_usage is True:
        if not usage_chunks:
            e.append("include_usage asked, no usage chunk")
        else:
            k, c = usage_chunks[-1]
            if c.get("choices") != []:
                e.append("usage chunk has choices (must be [])")
            if k != len(chunks) - 1:
                e.append("usage chunk is not the last chunk")
            if len(usage_chunks) != 1:
                e.append(f"{len(usage_chunks)} chunks carry usage (others must be null)")
            e += validate_usage_openai(c["usage"])
    elif include_usage is False and usage_chunks:
        e.append("usage in stream although not asked for")
    return e
