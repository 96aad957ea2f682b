"""vLLM 0.32 on the wire, as captured from a real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backends.simulator.answers import Token
from backends.simulator.calls import Call, Choice, Kind, Usage
from backends.simulator.engine import VLLM
from backends.simulator.vllm import checks
from backends.simulator.vllm.bodies import (
    FINGERPRINT,
    chat_choice,
    chat_chunk,
    completion_choice,
    completion_chunk,
    deltas,
    finish_reason,
    head,
    usage_body,
)
from backends.simulator.vllm.info import GET_PATHS, info
from backends.simulator.wire import Facts, Refusal, Served, encode, number

_BUSY = (
    "The engine is currently busy and cannot accept new requests. Please try again later or on a different instance."
)


class VllmWire:
    """The `vllm` flavour."""

    scheduling = VLLM
    get_paths = GET_PATHS
    health_paths: Mapping[str, float] = {"/health": 0.0, "/ping": 0.0}
    generate_paths: Mapping[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
    tokenize_paths = frozenset({"/tokenize"})
    detokenize_paths = frozenset({"/detokenize"})
    flush_paths = frozenset({"/reset_prefix_cache"})
    abort_path = ""
    early_headers = True
    notice_s = (0.1, 0.1)

    def guarded(self, path: str) -> bool:
        """Only paths under /v1 need the key."""
        return path.startswith("/v1/")

    def parse(self, kind: Kind, body: bytes, content_type: str) -> dict[str, Any]:
        """See `checks.parse`."""
        return checks.parse(kind, body, content_type)

    def check_model(self, body: Mapping[str, Any], served: Served) -> None:
        """An unknown name is 404; none at all is fine."""
        checks.check_model(body.get("model"), served)

    def check(self, call: Call, served: Served) -> None:
        """See `checks.check`."""
        checks.check(call, served)

    def id(self, kind: Kind, headers: Mapping[str, str], body: Mapping[str, Any], fresh: str) -> str:
        """The X-Request-Id header wins over the body's request_id."""
        prefix = "chatcmpl" if kind == "chat" else "cmpl"
        return f"{prefix}-{headers.get('x-request-id') or body.get('request_id') or fresh[:16]}"

    def priority(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> int:
        """The header wins; lower is sooner."""
        header = headers.get("x-vllm-priority", "")
        return int(header) if header.lstrip("-").isdecimal() else number(body.get("priority")) or 0

    def queue_full(self, call: Call) -> Refusal:  # noqa: ARG002 - the same for every call
        """503 before any frame, streamed or not."""
        return checks.error(503, _BUSY, "Service Unavailable")

    def duplicate(self, call: Call) -> Refusal | None:  # noqa: ARG002
        """Ids get a random suffix inside the engine, so it does not mind."""
        return None

    def internal_error(self) -> Refusal:
        """Status 500."""
        return checks.error(500, "Internal server error", "InternalServerError")

    def error_frame(self) -> bytes:
        """As captured in the middle of a chat stream, spaces included."""
        kind = b'"type": "InternalServerError", "param": null, "code": 500'
        return b'{"error": {"message": "Internal server error", ' + kind + b"}}"

    def opening(self, call: Call, usage: Usage | None) -> Iterator[bytes]:
        """One role chunk per choice (chat only)."""
        for choice in call.choices if call.kind == "chat" else ():
            chunk = head(call)
            delta = {"role": "assistant", "content": ""}
            chunk["choices"] = [{"index": choice.index, "delta": delta, "logprobs": None, "finish_reason": None}]
            if usage is not None:
                chunk["usage"] = usage_body(call, usage, running=True)
            chunk["prompt_token_ids"] = choice.prompt if call.return_ids else None
            chunk["prompt_text"] = None
            yield encode(chunk)

    def frames(self, call: Call, choice: Choice, tokens: Sequence[Token], usage: Usage | None) -> Iterator[bytes]:
        """A chunk per token that shows something."""
        for token in tokens:
            if call.kind == "completions":
                yield _encode(completion_chunk(call, choice, token, None), usage, call)
                continue
            for delta in deltas(choice, token):
                yield _encode(chat_chunk(call, choice, delta, token, None), usage, call)

    def ending(
        self, call: Call, choice: Choice, token: Token | None, usage: Usage | None, *, last: bool
    ) -> Iterator[bytes]:
        """The finish reason sits on the last content chunk, or on an empty one when the last token shows nothing."""
        reason = finish_reason(call, choice)
        if call.kind == "completions":
            chunk = completion_chunk(call, choice, token, reason)
        else:
            shown = list(deltas(choice, token)) if token is not None else []
            yield from (_encode(chat_chunk(call, choice, delta, token, None), usage, call) for delta in shown[:-1])
            chunk = chat_chunk(call, choice, shown[-1] if shown else {}, token, reason)
        if last and not call.include_usage:
            chunk["system_fingerprint"] = FINGERPRINT
        yield _encode(chunk, usage, call)

    def closing(self, call: Call, usage: Usage) -> Iterator[bytes]:
        """The usage chunk."""
        if call.include_usage:
            chunk = head(call)
            chunk["choices"] = []
            chunk["usage"] = usage_body(call, usage, streamed=True)
            chunk["system_fingerprint"] = FINGERPRINT
            yield encode(chunk)

    def whole(self, call: Call, usage: Usage) -> Any:
        """A full answer."""
        chat = call.kind == "chat"
        body = head(call) | {"object": "chat.completion" if chat else "text_completion"}
        body["choices"] = [(chat_choice if chat else completion_choice)(call, choice) for choice in call.choices]
        body |= {"service_tier": None, "system_fingerprint": FINGERPRINT, "usage": usage_body(call, usage)}
        if chat:
            ids = call.prompts[0] if call.return_ids else None
            body |= {"prompt_logprobs": None, "prompt_token_ids": ids, "prompt_text": None}
        return body | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}

    def info(self, path: str, facts: Facts) -> tuple[int, Any]:
        """See `info.info`."""
        return info(path, facts)

    def flush(self, asked: Mapping[str, Any], *, busy: bool) -> tuple[int, Any, bool]:  # noqa: ARG002
        """Blocks in use stay; host memory is cleared only with ?reset_external=true."""
        return 200, {"success": True}, asked.get("reset_external") == "true"

    def tokenized(self, tokens: Sequence[int], strings: Sequence[str] | None, served: Served) -> Any:
        """Answer of /tokenize."""
        return {"count": len(tokens), "max_model_len": served.max_len, "tokens": tokens, "token_strs": strings}

    def detokenized(self, text: str) -> Any:
        """Answer of /detokenize."""
        return {"prompt": text}


def _encode(chunk: dict[str, Any], usage: Usage | None, call: Call) -> bytes:
    if usage is not None:
        chunk["usage"] = usage_body(call, usage, running=True)
    return encode(chunk)
