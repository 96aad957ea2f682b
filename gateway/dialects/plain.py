"""Endpoints that only need the right pool: embeddings, rerank, tokenize, detokenize, and engines' own generation ones.

The body goes on as it is but for the model's name and steering fields; the answer comes back as it is but for the
model's name. Errors take the OpenAI form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import msgspec
from msgspec import Raw

from backends.contracts import DialectName, EngineFailure
from gateway.dialects import openai_errors
from gateway.dialects.base import Transcoder, Usage
from gateway.dialects.chat_messages import scan
from gateway.dialects.chunk import decode_fields, read_usage
from gateway.dialects.failures import truncated
from gateway.dialects.fields import header_list, missing, read, read_object, unsupported
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request, Traits
from gateway.dialects.passthrough import raw
from gateway.dialects.registry import DecodeOptions, EngineRequest
from gateway.dialects.seal import Seal
from gateway.dialects.target import Target
from gateway.errors import GatewayError
from gateway.steering import strip_fields

_text = msgspec.json.Decoder(str).decode
_flag = msgspec.json.Decoder(bool | None).decode
_any = msgspec.json.Decoder(Any).decode
_texts = msgspec.json.Decoder(str | list[str | int | list[int]]).decode
# What engines take media from outside of `messages`; some of them read files as well.
_INPUTS: Final = ("input", "query", "queries", "documents", "items", "text_1", "text_2", "data_1", "data_2")
_MEDIA: Final = ("image", "video", "audio")  # how the keys of media begin


class Plain:
    """One such endpoint. `engine_path` is what the engine calls it."""

    __slots__ = ("_engine_path",)
    name: DialectName = "completions"

    def __init__(self, engine_path: str) -> None:
        self._engine_path = engine_path

    def decode_request(self, body: bytes, headers: Mapping[str, str], options: DecodeOptions) -> Request:  # noqa: ARG002
        """Read `model`, `stream` and where media may be; everything else is the engine's business."""
        fields = read_object(body)
        ignored = [*strip_fields(fields, options.grants)]
        if "model" not in fields:
            raise missing("model")
        model = read("model", _text, fields["model"])
        stream = bool(read("stream", _flag, fields["stream"])) if "stream" in fields else False
        modalities = scan(fields["messages"], body).modalities if "messages" in fields else ()
        _refuse_media(fields)
        traits = Traits(modalities=frozenset(modalities), stream=stream, prompt_bytes=len(body))
        return Request(
            dialect=self.name,
            model=model,
            stream=stream,
            traits=traits,
            body=body,
            raw=fields,
            engine_path=self._engine_path,
            ignored=ignored,
        )

    def encode_engine_request(self, request: Request, target: Target) -> EngineRequest:
        """The same fields under the pool's model name."""
        body = msgspec.json.encode({**request.raw, "model": raw(target.model)})
        headers = {"x-gateway-ignored-params": header_list(request.ignored)} if request.ignored else {}
        return EngineRequest(self._engine_path, body, request.stream, headers=headers)

    def transcoder(
        self,
        request: Request,
        sent: EngineRequest,  # noqa: ARG002 - the answer's form follows the request's
        target: Target,
        ids: Ids,  # noqa: ARG002 - the answer has no id of ours
        seal: Seal,  # noqa: ARG002 - nor reasoning
    ) -> Transcoder:
        """Hands the answer on."""
        return Forwarded(target) if request.stream else Whole(request.model, target)

    def encode_error(self, error: GatewayError, request_id: str) -> tuple[int, dict[str, str], bytes]:
        """OpenAI's envelope."""
        return openai_errors.encode_error(error, request_id)


def _refuse_media(fields: Mapping[str, Raw]) -> None:
    """Media are served where the guard looks for them, in `messages`: an engine would fetch these unguarded."""
    for name in _INPUTS:
        if name in fields and not _is_text(fields[name]) and _has_media(_any(fields[name])):
            raise unsupported(name, "media are served in `messages` only")


def _is_text(value: Raw) -> bool:
    try:
        _texts(value)
    except msgspec.ValidationError:
        return False
    return True


def _has_media(value: Any) -> bool:
    left = [value]  # no recursion: clients choose the depth
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if any(key.startswith(_MEDIA) for key in one):
                return True
            left += one.values()
        elif isinstance(one, list):
            left += one
    return False


class Whole:
    """The transcoder of one JSON answer."""

    def __init__(self, model: str, target: Target) -> None:
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self._model = raw(model)
        self._target = target
        self._parts: list[bytes] = []

    def feed(self, data: bytes) -> bytes:
        """Collect."""
        self._parts.append(data)
        return b""

    def eof(self) -> bytes:
        """The answer, with the model's name as the client knows it; lists and bare values go on as they are."""
        body = b"".join(self._parts)
        self.started = True
        if not body.lstrip().startswith(b"{"):
            self.finished = True
            return body
        fields = decode_fields(body)
        self.failure = None if fields and "error" not in fields else self._target.frame_failure(body)
        if fields is None or self.failure is not None:
            return b""
        self.finished = True
        if "usage" in fields and bytes(fields["usage"]).startswith(b"{"):
            self.usage = read_usage(fields["usage"])
        if bytes(fields.get("model", b"")) in (b"", bytes(self._model)):
            return body
        return msgspec.json.encode({**fields, "model": self._model})

    def fail(self, error: GatewayError) -> bytes:
        """Never reached: nothing is committed before the answer is whole."""
        raise error

    def keepalive(self) -> bytes:
        """A JSON body has no heartbeat."""
        return b""


class Forwarded:
    """The transcoder of a stream of the engine's own kind, which ends with `[DONE]`."""

    def __init__(self, target: Target) -> None:
        self.failure: EngineFailure | None = None
        self.started = False
        self.finished = False
        self.abort_engine = False
        self.usage: Usage | None = None
        self.finish: str | None = None
        self._target = target
        self._tail = b""

    def feed(self, data: bytes) -> bytes:
        """Hand on; an error in the first frame is told apart from an answer."""
        if not self.started and data.startswith(b'data: {"error"'):
            self.failure = self._target.frame_failure(data[6:].split(b"\n")[0])
            return b""
        self.started = True
        self._tail = (self._tail + data)[-64:]
        return data

    def eof(self) -> bytes:
        """Nothing is added; without the closing frame the answer is truncated."""
        self.finished = b"data: [DONE]" in self._tail
        if not self.finished:
            self.failure = truncated()
        return b""

    def fail(self, error: GatewayError) -> bytes:
        """An error frame, then the end."""
        return b"data: " + openai_errors.body(error) + b"\n\ndata: [DONE]\n\n"

    def keepalive(self) -> bytes:
        """A comment."""
        return b": ping\n\n"
