"""SGLang 0.5.23 on the wire, as captured from a real server, and the NIM around one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from backends.simulator.answers import Token
from backends.simulator.calls import Call, Choice, Kind, Usage
from backends.simulator.engine import SGLANG
from backends.simulator.sglang import checks
from backends.simulator.sglang.bodies import (
    chat_choice,
    chat_chunk,
    completion_choice,
    completion_chunk,
    deltas,
    finish_chunk,
    finish_reason,
    head,
    sglext,
    usage_body,
)
from backends.simulator.sglang.info import NIM_PATHS, SGLANG_PATHS, nim_info, sglang_info
from backends.simulator.wire import Facts, Refusal, Served, encode, number

_FULL = "The request queue is full."
_FULL_FRAME = (
    b'{"error": {"object": "error", "message": "The request queue is full.", '
    b'"type": "SERVICE_UNAVAILABLE", "param": null, "code": 503}}'
)
_FLUSHED = (
    "Cache flushed.\nPlease check backend logs for more details. "
    "(When there are running or waiting requests, the operation will not be performed.)\n"
)


class SglangWire:
    """The `sglang` flavour."""

    scheduling = SGLANG
    get_paths = SGLANG_PATHS
    # /health runs a one-token generation and never takes less than a second.
    health_paths: Mapping[str, float] = {"/health": 1.0, "/health_generate": 1.0, "/ready": 0.0, "/ping": 0.0}
    generate_paths: Mapping[str, Kind] = {"/v1/chat/completions": "chat", "/v1/completions": "completions"}
    tokenize_paths = frozenset({"/tokenize", "/v1/tokenize"})
    detokenize_paths = frozenset({"/detokenize", "/v1/detokenize"})
    flush_paths = frozenset({"/flush_cache"})
    abort_path = "/abort_request"
    early_headers = False  # held until the engine's first output
    notice_s = (0.6, 4.0)

    def guarded(self, path: str) -> bool:
        """Everything but health and metrics needs the key."""
        return not path.startswith(("/health", "/ready", "/metrics"))

    def parse(self, kind: Kind, body: bytes, content_type: str) -> dict[str, Any]:
        """See `checks.parse`."""
        return checks.parse(kind, body, content_type)

    def check_model(self, body: Mapping[str, Any], served: Served) -> None:
        """Any name will do."""

    def check(self, call: Call, served: Served) -> None:
        """See `checks.check`."""
        checks.check(call, served)

    def id(self, kind: Kind, headers: Mapping[str, str], body: Mapping[str, Any], fresh: str) -> str:  # noqa: ARG002
        """The body's rid, bare, or 32 hex digits."""
        return str(body.get("rid") or fresh)

    def priority(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> int:  # noqa: ARG002
        """Higher is sooner on the wire."""
        return -(number(body.get("priority")) or 0)

    def queue_full(self, call: Call) -> Refusal:
        """503 and flat when not streamed; under status 200 and in the first frame when streamed."""
        refusal = checks.error(503, _FULL, "503")
        return Refusal(200, None, (_FULL_FRAME,)) if call.stream else refusal

    def duplicate(self, call: Call) -> Refusal | None:
        """A rid that is running already is refused."""
        return checks.error(400, f"Duplicate request ID detected: {call.id}")

    def internal_error(self) -> Refusal:
        """Status 500."""
        return checks.error(500, "Internal server error", "InternalServerError")

    def error_frame(self) -> bytes:
        """An error in the middle of a stream."""
        return (
            b'{"error": {"object": "error", "message": "Internal server error", '
            b'"type": "InternalServerError", "param": null, "code": 500}}'
        )

    def opening(self, call: Call, usage: Usage | None) -> Iterator[bytes]:  # noqa: ARG002
        """One role chunk per choice (chat only)."""
        for choice in call.choices if call.kind == "chat" else ():
            yield encode(
                chat_chunk(call, choice, {"reasoning_content": None, "role": "assistant", "content": ""}, None)
            )

    def frames(self, call: Call, choice: Choice, tokens: Sequence[Token], usage: Usage | None) -> Iterator[bytes]:
        """A chunk per token; in chat only for those that show something."""
        for token in tokens:
            if call.kind == "completions":
                yield _encode(completion_chunk(call, choice, token, None), usage, call)
                continue
            for delta in deltas(choice, token):
                yield _encode(chat_chunk(call, choice, delta, token), usage, call)

    def ending(
        self,
        call: Call,
        choice: Choice,
        token: Token | None,
        usage: Usage | None,
        *,
        last: bool,  # noqa: ARG002 - chunks do not tell
    ) -> Iterator[bytes]:
        """Chat: the last token, then a chunk of its own for the finish reason. Completions: both in one."""
        if call.kind == "completions":
            yield _encode(completion_chunk(call, choice, token, finish_reason(choice)), usage, call)
            return
        yield from self.frames(call, choice, [token] if token is not None else [], usage)
        yield encode(finish_chunk(call, choice))

    def closing(self, call: Call, usage: Usage) -> Iterator[bytes]:
        """Cached tokens by tier when asked for, then usage."""
        extra = sglext(call, usage)
        if extra is not None:
            yield encode(head(call) | {"choices": [], "usage": None, "sglext": extra})
        if call.include_usage:
            yield encode(head(call) | {"choices": [], "usage": usage_body(call, usage)})

    def whole(self, call: Call, usage: Usage) -> Any:
        """A full answer."""
        chat = call.kind == "chat"
        body = head(call) | {"object": "chat.completion" if chat else "text_completion"}
        body["choices"] = [(chat_choice if chat else completion_choice)(call, choice) for choice in call.choices]
        body["usage"] = usage_body(call, usage)
        versions = [{"version": "default", "start": 0, "end": usage.completion}]
        body["metadata"] = {"weight_version": "default", "weight_versions": versions}
        extra = sglext(call, usage)
        return body | ({"sglext": extra} if extra is not None else {})

    def info(self, path: str, facts: Facts) -> tuple[int, Any]:
        """See `info.sglang_info`."""
        return sglang_info(path, facts)

    def flush(self, asked: Mapping[str, Any], *, busy: bool) -> tuple[int, Any, bool]:  # noqa: ARG002
        """Clears GPU and host, and refuses while anything runs."""
        return (400, "Flush cache failed.\n", False) if busy else (200, _FLUSHED, True)

    def tokenized(self, tokens: Sequence[int], strings: Sequence[str] | None, served: Served) -> Any:  # noqa: ARG002
        """Answer of /tokenize."""
        return {"tokens": tokens, "count": len(tokens), "max_model_len": served.max_len}

    def detokenized(self, text: str) -> Any:
        """Answer of /detokenize."""
        return {"text": text}


class NimWire(SglangWire):
    """The `nim` flavour: fewer endpoints, its own health routes."""

    get_paths = NIM_PATHS
    health_paths: Mapping[str, float] = {"/v1/health/ready": 0.0, "/v1/health/live": 0.0}
    tokenize_paths = frozenset({"/tokenize"})
    detokenize_paths = frozenset({"/detokenize"})
    flush_paths: frozenset[str] = frozenset()
    abort_path = ""

    def guarded(self, path: str) -> bool:
        """Everything but health and metrics needs the key."""
        return not path.startswith(("/v1/health", "/v1/metrics"))

    def info(self, path: str, facts: Facts) -> tuple[int, Any]:
        """See `info.nim_info`."""
        return nim_info(path, facts)


def _encode(chunk: dict[str, Any], usage: Usage | None, call: Call) -> bytes:
    if usage is not None:
        chunk["usage"] = usage_body(call, usage)
    return encode(chunk)
