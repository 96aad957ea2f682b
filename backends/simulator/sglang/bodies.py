"""SGLang's response bodies and stream chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backends.simulator.answers import Token
from backends.simulator.calls import Call, Choice, Usage
from backends.simulator.logprobs import chat_logprobs, completion_logprobs


def head(call: Call) -> dict[str, Any]:
    """What every chunk begins with."""
    kind = "chat.completion.chunk" if call.kind == "chat" else "text_completion"
    return {"id": call.id, "object": kind, "created": call.created, "model": call.model}


def finish_reason(choice: Choice) -> str:
    """stop | length | tool_calls | abort."""
    return "abort" if choice.aborted else choice.answer.finish


def deltas(choice: Choice, token: Token) -> Iterator[dict[str, Any]]:
    """The deltas of one token: none when it shows nothing, two when it opens a tool call."""
    if token.channel == "call":
        if token.opens:
            yield _call_delta(token.call, _call_id(choice, token.call), choice.answer.calls[token.call], "")
        if token.text:
            yield _call_delta(token.call, None, None, token.text)
    elif token.text:
        thinking = token.channel == "reasoning"
        yield {"reasoning_content": token.text} if thinking else {"reasoning_content": None, "content": token.text}


def chat_chunk(call: Call, choice: Choice, delta: dict[str, Any], token: Token | None) -> dict[str, Any]:
    """One chat chunk. Chunks of tool calls say `usage: null`, the others leave it out."""
    chunk = head(call)
    shown = chat_logprobs([token], call.logprobs) if call.logprobs is not None and token and token.text else None
    chunk["choices"] = [
        {"index": choice.index, "delta": delta, "logprobs": shown, "finish_reason": None, "matched_stop": None}
    ]
    if "tool_calls" in delta:
        chunk["usage"] = None
    return chunk


def finish_chunk(call: Call, choice: Choice) -> dict[str, Any]:
    """The chunk of a chat choice that carries nothing but its finish reason."""
    chunk = chat_chunk(call, choice, {"reasoning_content": None}, None)
    chunk["choices"][0] |= {"finish_reason": finish_reason(choice), "matched_stop": matched(choice)}
    return chunk


def matched(choice: Choice) -> str | None:
    """The stop string that ended the answer."""
    return None if choice.aborted else choice.answer.matched


def completion_chunk(call: Call, choice: Choice, token: Token | None, finish: str | None) -> dict[str, Any]:
    """One completions chunk. The first of a choice carries the echoed prompt; empty ones occur."""
    chunk = head(call)
    shown = completion_logprobs([token], call.logprobs, 0) if call.logprobs is not None and token else None
    chunk["choices"] = [
        {
            "index": choice.index,
            "text": (choice.echo if choice.sent <= 1 else "") + (token.text if token else ""),
            "logprobs": shown,
            "finish_reason": finish,
            "matched_stop": matched(choice) if finish is not None else None,
        }
    ]
    chunk["usage"] = None
    return chunk


def chat_choice(call: Call, choice: Choice) -> dict[str, Any]:
    """One choice of a chat answer that is not streamed."""
    message: dict[str, Any] = {"role": "assistant", "content": choice.text("content")}
    message["reasoning_content"] = choice.text("reasoning") or None
    if choice.called:
        message["tool_calls"] = [
            {
                "id": _call_id(choice, index),
                "index": index,
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(choice.called)
        ]
    shown = [token for token in choice.said if token.channel == "content" and token.text]
    return {
        "index": choice.index,
        "message": message,
        "logprobs": chat_logprobs(shown, call.logprobs) if call.logprobs is not None else None,
        "finish_reason": finish_reason(choice),
        "matched_stop": matched(choice),
    }


def completion_choice(call: Call, choice: Choice) -> dict[str, Any]:
    """One choice of a completions answer that is not streamed."""
    tokens = [token for token in choice.said if token.channel != "silent"]
    return {
        "index": choice.index,
        "text": choice.echo + choice.text("content"),
        "logprobs": completion_logprobs(tokens, call.logprobs, 0) if call.logprobs is not None else None,
        "finish_reason": finish_reason(choice),
        "matched_stop": matched(choice),
    }


def usage_body(call: Call, usage: Usage) -> dict[str, Any]:
    """The same in full answers, usage chunks and beside tokens."""
    out: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
        "prompt_tokens_details": {"cached_tokens": usage.cached.total} if call.report_cached else None,
        "reasoning_tokens": usage.reasoning,
    }
    if call.kind == "chat":
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning}
    return out


def sglext(call: Call, usage: Usage) -> dict[str, Any] | None:
    """Cached tokens by tier, when asked for and not zero."""
    if not call.body.get("return_cached_tokens_details") or not usage.cached.total:
        return None
    details: dict[str, Any] = {"device": usage.cached.gpu, "host": usage.cached.host}
    if usage.cached.fs:
        details |= {"storage": usage.cached.fs, "storage_backend": "HiCacheFile"}
    return {"cached_tokens_details": details}


def _call_id(choice: Choice, index: int) -> str:
    return f"call_{(choice.mark << 32) + index & (1 << 96) - 1:024x}"


def _call_delta(index: int, call_id: str | None, name: str | None, arguments: str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    call = {"id": call_id, "index": index, "type": "function", "function": function}
    return {"role": None, "content": None, "reasoning_content": None, "tool_calls": [call]}
