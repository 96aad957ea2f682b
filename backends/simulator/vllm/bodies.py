"""vLLM's response bodies and stream chunks."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from backends.simulator.answers import Token
from backends.simulator.calls import Call, Choice, Usage
from backends.simulator.logprobs import chat_logprobs, completion_logprobs

VERSION = "0.32.0"
FINGERPRINT = f"vllm-{VERSION}-51390000"
_CHANNEL_FIELDS = {"reasoning": "reasoning", "content": "content"}


def finish_reason(call: Call, choice: Choice) -> str:
    """A named tool choice ends in "stop", a required or free one in "tool_calls"."""
    if choice.aborted:
        return "abort"
    named = call.asks[0].tool_choice not in ("none", "auto", "required")
    return "stop" if choice.answer.finish == "tool_calls" and named else choice.answer.finish


def head(call: Call) -> dict[str, Any]:
    """What every chunk begins with."""
    kind = "chat.completion.chunk" if call.kind == "chat" else "text_completion"
    return {"id": call.id, "object": kind, "created": call.created, "model": call.model}


def deltas(choice: Choice, token: Token) -> Iterator[dict[str, Any]]:
    """The deltas of one token: none when it shows nothing, two when it opens a tool call."""
    if token.channel == "call":
        if token.opens:
            yield {"content": None, "tool_calls": [_call_head(choice, token.call)]}
        if token.text:
            part = {"index": token.call, "function": {"arguments": token.text}}
            yield {"content": None, "tool_calls": [part]}
    elif token.text:
        yield {_CHANNEL_FIELDS[token.channel]: token.text}


def _call_head(choice: Choice, index: int) -> dict[str, Any]:
    return {
        "id": _call_id(choice, index),
        "type": "function",
        "index": index,
        "function": {"name": choice.answer.calls[index]},
    }


def _call_id(choice: Choice, index: int) -> str:
    """A stable tool call id."""
    return f"chatcmpl-tool-{(choice.mark + index) & 0xFFFF_FFFF_FFFF_FFFF:016x}"


def chat_chunk(
    call: Call, choice: Choice, delta: dict[str, Any], token: Token | None, finish: str | None
) -> dict[str, Any]:
    """One chat chunk. `token` gives logprobs and ids."""
    chunk = head(call)
    shown = chat_logprobs([token], call.logprobs) if call.logprobs is not None and token and token.text else None
    entry: dict[str, Any] = {"index": choice.index, "delta": delta, "logprobs": shown, "finish_reason": finish}
    if finish is not None:
        entry["stop_reason"] = choice.answer.matched
    entry["token_ids"] = [token.id] if call.return_ids and token else None
    chunk["choices"] = [entry]
    return chunk


def completion_chunk(call: Call, choice: Choice, token: Token | None, finish: str | None) -> dict[str, Any]:
    """One completions chunk. The first of a choice carries the echoed prompt."""
    chunk = head(call)
    first = choice.sent <= 1
    shown = completion_logprobs([token], call.logprobs, 0) if call.logprobs is not None and token else None
    chunk["choices"] = [
        {
            "index": choice.index,
            "text": (choice.echo if first else "") + (token.text if token else ""),
            "logprobs": shown,
            "finish_reason": finish,
            "stop_reason": choice.answer.matched if finish is not None else None,
            "prompt_token_ids": choice.prompt if call.return_ids and first else None,
            "token_ids": [token.id] if call.return_ids and token else None,
        }
    ]
    return chunk


def chat_choice(call: Call, choice: Choice) -> dict[str, Any]:
    """One choice of a chat answer that is not streamed."""
    tokens = choice.said
    said = choice.text("content")
    thinking = bool(tokens) and tokens[-1].channel == "reasoning" and not said
    message: dict[str, Any] = {
        "role": "assistant",
        "content": None if thinking else said,
        "refusal": None,
        "annotations": None,
        "audio": None,
        "function_call": None,
    }
    if choice.called:
        message["tool_calls"] = [
            {
                "id": _call_id(choice, index),
                "type": "function",
                "function": {"name": name, "arguments": arguments},
            }
            for index, (name, arguments) in enumerate(choice.called)
        ]
    message["reasoning"] = choice.text("reasoning") or None
    shown = [token for token in tokens if token.channel == "content" and token.text]
    return {
        "index": choice.index,
        "message": message,
        "logprobs": chat_logprobs(shown, call.logprobs) if call.logprobs is not None else None,
        "finish_reason": finish_reason(call, choice),
        "stop_reason": choice.answer.matched,
        "token_ids": [token.id for token in tokens] if call.return_ids else None,
        "routed_experts": None,
    }


def completion_choice(call: Call, choice: Choice) -> dict[str, Any]:
    """One choice of a completions answer that is not streamed."""
    tokens = [token for token in choice.said if token.channel != "silent"]
    return {
        "index": choice.index,
        "text": choice.echo + choice.text("content"),
        "logprobs": completion_logprobs(tokens, call.logprobs, 0) if call.logprobs is not None else None,
        "finish_reason": finish_reason(call, choice),
        "stop_reason": choice.answer.matched,
        "token_ids": [token.id for token in choice.said] if call.return_ids else None,
        "prompt_logprobs": None,
        "prompt_token_ids": choice.prompt if call.return_ids else None,
        "routed_experts": None,
    }


def usage_body(call: Call, usage: Usage, *, streamed: bool = False, running: bool = False) -> dict[str, Any]:
    """Usage of a full answer, of the usage chunk (`streamed`), or beside a token (`running`)."""
    out: dict[str, Any] = {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.completion,
        "completion_tokens": usage.completion,
    }
    if call.report_cached and not running:
        out["prompt_tokens_details"] = _prompt_details(call, usage, streamed=streamed)
    if running or call.reasoning or not streamed:
        out["completion_tokens_details"] = {"reasoning_tokens": usage.reasoning} if call.reasoning else None
    return out


def _prompt_details(call: Call, usage: Usage, *, streamed: bool) -> dict[str, Any]:
    chat = call.kind == "chat"
    details: dict[str, Any] = {"cached_tokens": usage.cached.total}
    if chat or not streamed:
        details["created_cache_tokens"] = usage.created if chat else None
    return details if streamed else details | {"multimodal_tokens": None}
