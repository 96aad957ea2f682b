"""Counting a prompt's tokens: rendered and tokenized by a pool that would serve it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import msgspec
from msgspec import Raw

from backends.contracts import DialectName, EngineFailure
from gateway.dialects.base import Transcoder, Usage
from gateway.dialects.chunk import decode_fields
from gateway.dialects.failures import foreign, truncated
from gateway.dialects.ids import Ids
from gateway.dialects.messages import Messages
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions, Dialect, EngineRequest
from gateway.dialects.responses import Responses
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import GatewayError

# What decides how the chat template is rendered. `add_generation_prompt` is not among them: without it both engines
# render as they do for a chat completion.
_RENDERED = ("model", "messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort")
TOKENIZE = "/tokenize"
_EFFORT = "x-gateway-reasoning-effort"
_object = msgspec.json.Decoder(dict[str, Raw] | None).decode


def tokenize_body(chat: bytes) -> bytes:
    """What of an engine's Chat body shapes the prompt, for the engine's `TOKENIZE`."""
    fields = decode_fields(chat) or {}
    body = {name: fields[name] for name in _RENDERED if name in fields}
    if "reasoning_effort" in body:  # vLLM's tokenizer takes it among the arguments of the template only
        arguments = _object(body.get("chat_template_kwargs", b"null")) or {}
        arguments = {"reasoning_effort": body["reasoning_effort"], **arguments}
        body["chat_template_kwargs"] = Raw(msgspec.json.encode(arguments))
    parts: list[bytes | Raw] = [b"{"]  # put together once: an encoder would hold half as much again for a long prompt
    for name, value in body.items():
        parts += (b"," if len(parts) > 1 else b"", f'"{name}":'.encode(), value)
    return b"".join((*parts, b"}"))


def read_count(answer: bytes) -> int | None:
    """The number in the answer of an engine's `TOKENIZE`; None when there is none."""
    fields = decode_fields(answer)
    count = bytes(fields.get("count", b"")) if fields is not None else b""
    return int(count) if count.isdigit() else None


class Counting:
    """`/v1/messages/count_tokens` and `/v1/responses/input_tokens`: a dialect whose answer is a number."""

    def __init__(
        self,
        inner: Dialect,
        decode: Callable[[bytes, Mapping[str, str], DecodeOptions], Request],
        answer: Mapping[str, str],
    ) -> None:
        """`answer` holds the other fields of the client's answer."""
        self.name: DialectName = inner.name
        self._inner = inner
        self._decode = decode
        self._answer = answer

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`. Nothing is streamed."""
        request = self._decode(body, headers, options)
        request.stream = False
        request.engine_path = TOKENIZE
        return request

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """What of the Chat body shapes the prompt, for the engine's tokenizer."""
        sent = self._inner.encode_engine_request(request, target)
        headers = {name: value for name, value in sent.headers.items() if name != _EFFORT}  # no answer, no effort
        return EngineRequest(TOKENIZE, tokenize_body(sent.body), stream=False, headers=headers, generates=False)

    def transcoder(
        self,
        request: Request,  # noqa: ARG002 - the answer is a number whatever was asked
        sent: EngineRequest,  # noqa: ARG002
        target: Target,
        ids: Ids,  # noqa: ARG002
        seal: Seal,  # noqa: ARG002
    ) -> Transcoder:
        """See `Dialect.transcoder`."""
        return Counted(self._answer, target)

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return self._inner.encode_error(error, request_id)


class Counted:
    """The transcoder of a count."""

    def __init__(self, answer: Mapping[str, str], target: Target) -> None:
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self._answer = answer
        self._target = target
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """Collect."""
        self._parts.append(data)
        return b""

    def eof(self) -> bytes:
        """The number in the client's form."""
        body = b"".join(self._parts)
        count = read_count(body)
        if count is None:
            whole = decode_fields(body) is not None
            self.failure = self._target.frame_failure(body) or foreign() if whole else truncated()
            return b""
        self.started = self.finished = True
        return msgspec.json.encode({**self._answer, "input_tokens": count})

    def fail(self, error: GatewayError) -> bytes:
        """Never reached: nothing is committed before the answer is whole."""
        raise error

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""


def count_messages() -> Counting:
    """`/v1/messages/count_tokens`."""
    messages = Messages()
    return Counting(messages, messages.decode_count, {})


def count_responses(responses: Dialect | None = None) -> Counting:
    """`/v1/responses/input_tokens`; `responses` is a dialect that knows earlier turns."""
    responses = responses or Responses()
    return Counting(responses, responses.decode_request, {"object": "response.input_tokens"})
