"""Counting a prompt without generating: the chosen pool renders and tokenizes what it would have been asked.

Serves `/v1/messages/count_tokens` and `/v1/responses/input_tokens`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from backends.contracts import DialectName, EngineFailure
from gateway.dialects.base import Usage
from gateway.dialects.failures import foreign
from gateway.dialects.ids import Ids
from gateway.dialects.messages import Messages
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions, Dialect, EngineRequest
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import GatewayError

# What decides how the chat template is rendered. `add_generation_prompt` is not among them: without it both engines
# render as they do for a chat completion.
_RENDERED = ("model", "messages", "tools", "tool_choice", "chat_template_kwargs", "reasoning_effort")
_PATH = "/tokenize"
_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_object = msgspec.json.Decoder(dict[str, Raw] | None).decode
Form = Callable[[int], dict[str, Any]]


class _Tokens(msgspec.Struct):
    count: int


_tokens = msgspec.json.Decoder(_Tokens)


class Counting:
    """A dialect whose requests are counted and not answered. The rest is `inner`'s."""

    __slots__ = ("_form", "_inner", "name")

    def __init__(self, inner: Dialect, form: Form) -> None:
        """`form` makes the answer of a number of tokens."""
        self.name: DialectName = inner.name
        self._inner = inner
        self._form = form

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        request = self._inner.decode_request(body, headers, options)
        request.stream = False
        return request

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """The chat request, cut down to what the template sees."""
        sent = self._inner.encode_engine_request(request, target)
        chat = _fields(sent.body)
        body = {name: chat[name] for name in _RENDERED if name in chat}
        if "reasoning_effort" in body:  # vLLM's tokenizer takes it among the arguments of the template only
            arguments = _object(body.get("chat_template_kwargs", b"null")) or {}
            arguments = {"reasoning_effort": body["reasoning_effort"], **arguments}
            body["chat_template_kwargs"] = Raw(msgspec.json.encode(arguments))
        # No word of the effort: its header would speak of an answer.
        headers = {name: value for name, value in sent.headers.items() if name != "x-gateway-reasoning-effort"}
        return EngineRequest(_PATH, msgspec.json.encode(body), stream=False, headers=headers, generates=False)

    def transcoder(
        self,
        request: Request,  # noqa: ARG002 - a number is the same whatever was asked
        sent: EngineRequest,  # noqa: ARG002
        target: Target,
        ids: Ids,  # noqa: ARG002
        seal: Seal,  # noqa: ARG002
    ) -> Count:
        """See `Dialect.transcoder`."""
        return Count(self._form, target)

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """See `Dialect.encode_error`."""
        return self._inner.encode_error(error, request_id)


class Count:
    """The transcoder of one count. It has no `usage`: nothing was generated."""

    def __init__(self, form: Form, target: Target) -> None:
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self._form = form
        self._target = target
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """Collect."""
        self._parts.append(data)
        return b""

    def eof(self) -> bytes:
        """The number in the client's form."""
        body = b"".join(self._parts)
        try:
            count = _tokens.decode(body).count
        except msgspec.MsgspecError:
            self.failure = self._target.frame_failure(body) or foreign()
            return b""
        self.started = self.finished = True
        return msgspec.json.encode(self._form(count))

    def fail(self, error: GatewayError) -> bytes:
        """Never reached: nothing is committed before the number is there."""
        raise error

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""


class _MessagesToCount(Messages):
    """Messages without `max_tokens`, which counting does not need."""

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:
        """See `Dialect.decode_request`."""
        return self.decode_count(body, headers, options)


def messages_counting() -> Counting:
    """`/v1/messages/count_tokens`."""
    return Counting(_MessagesToCount(), lambda count: {"input_tokens": count})


def responses_counting(turn: Dialect) -> Counting:
    """`/v1/responses/input_tokens`, over the dialect of one exchange that knows earlier turns."""
    return Counting(turn, lambda count: {"object": "response.input_tokens", "input_tokens": count})
