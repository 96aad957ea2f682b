"""The everyday Chat exchange, recognised in one typed decode: nothing in it needs the careful path.

A request is direct when it holds only fields that every engine takes as they are and messages of plain text; an
answer is, when it already is what a Chat client may be told. Whatever is not goes through the careful path, which
also finds the words for what is wrong, so nothing here raises.
"""

from __future__ import annotations

import re

import msgspec
from msgspec import UNSET

from gateway.dialects.base import Usage
from gateway.dialects.chunk import canonical_usage
from gateway.dialects.direct_types import Answer, Asked, Event, Named, Part
from gateway.dialects.engine_usage import EngineUsage
from gateway.dialects.model import Request, Traits
from gateway.dialects.openings import WORTH, Openings
from gateway.dialects.registry import EngineRequest
from gateway.dialects.target import Target

_THINK_END = b"</think>"
# Of direct bodies only the top level has this key, and a quote inside a string is escaped: the first match is it.
_MODEL = re.compile(rb'"model"\s*:\s*"(?:[^"\\]|\\.)*"')
_ASK_USAGE = b',"stream_options":{"include_usage":true}'
_PREFIX = "chatcmpl-"
STOPS = {"stop": "end", "length": "length"}


_asked = msgspec.json.Decoder(Asked).decode
_answer = msgspec.json.Decoder(Answer).decode
_event = msgspec.json.Decoder(Event).decode
_named = msgspec.json.Decoder(Named).decode
_openings = Openings()


def read_direct(body: bytes) -> Request | None:
    """The request in `body` when it is direct, else None."""
    long = len(body) >= WORTH
    opening = _openings.find(body) if long else None
    try:
        asked = _asked(body if opening is None else _openings.unread(body, opening))
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    if long:
        _openings.learn(body, opening)
    options = asked.stream_options
    asks_usage = options is not UNSET and options.include_usage and asked.stream
    if (options is not UNSET and not asks_usage) or (b"<" in body and _THINK_END in body):
        return None
    limit = asked.max_completion_tokens or asked.max_tokens
    return Request(
        dialect="chat",
        model=asked.model,
        stream=asked.stream,
        traits=Traits(max_output=limit, stream=asked.stream, prompt_bytes=len(body)),
        body=body,
        raw={},
        max_output=limit,
        include_usage=asks_usage,
        direct=True,
    )


def encode_direct(request: Request, target: Target) -> EngineRequest | None:
    """The same bytes for the engine, but for the model's name, the effort of who names none, the salt and a stream's
    usage; None when it takes more: an effort to map, or a model that is named twice.
    """
    if request.reasoning.effort is not None:
        return None
    body = request.body
    if request.model != target.model:
        renamed = _renamed(body, target.model)
        if renamed is None:
            return None
        body = renamed
    added = b""
    if target.default_effort is not None:
        added = b',"reasoning_effort":' + msgspec.json.encode(target.default_effort)
    if target.cache_salt is not None:
        added += b',"cache_salt":' + msgspec.json.encode(target.cache_salt)
    if request.stream and not request.include_usage:
        added += _ASK_USAGE
    if added:
        body = b"%b%b}" % (body.rstrip()[:-1], added)
    return EngineRequest("/v1/chat/completions", body, request.stream, effort=target.default_effort)


def _renamed(body: bytes, model: str) -> bytes | None:
    """The body with another model; None when that is not all an engine could read: a key may be there twice."""
    found = _MODEL.match(body, max(body.find(b'"model"'), 0))
    if found is None:
        return None
    start, stop = found.span()
    renamed = b'%b"model":%b%b' % (body[:start], msgspec.json.encode(model), body[stop:])
    return renamed if _named(renamed).model == model else None


def direct_answer(body: bytes, model: str) -> tuple[Usage, str] | None:
    """Counts and stop reason of an answer that can go to the client as it is; None when it cannot."""
    try:
        answer = _answer(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    usage = _honest(answer.usage)
    if usage is None or answer.model != model or not answer.id.startswith(_PREFIX):
        return None
    return usage, STOPS[answer.choices[0].finish_reason]


def _honest(given: EngineUsage) -> Usage | None:
    """The counts, when the client may be told them as the engine wrote them."""
    usage = canonical_usage(given)
    honest = (
        usage.prompt == given.prompt_tokens
        and usage.completion == given.completion_tokens
        and (given.total_tokens is None or given.total_tokens == usage.prompt + usage.completion)
        and (given.prompt_tokens_details is None or usage.cached == given.prompt_tokens_details.cached_tokens)
        and usage.cache_write is None
    )
    return usage if honest else None


class DirectStream:
    """The events of a stream of one choice that can go to the client as they are.

    `take` says which; what it has seen by then stays readable for whoever goes on after the first that cannot.
    """

    __slots__ = ("_model", "closing", "created", "finish", "id", "role_sent", "started", "usage")

    def __init__(self, model: str) -> None:
        self._model = model
        self.id = ""  # of every event; "" before the first
        self.created = 0
        self.role_sent = False
        self.started = False  # something semantic was seen
        self.finish: str | None = None  # canonical stop reason, once the choice is finished
        self.usage: Usage | None = None
        self.closing = b""  # the event with the counts, which goes last

    def take(self, data: bytes) -> bool:
        """Whether an event (its JSON) may go on as it is. One with the counts becomes `closing` and has to wait.

        False: nothing of it was noted.
        """
        if self.closing or b"\\u" in data:  # nothing follows the counts; an escape may be half of a character
            return False
        try:
            event = _event(data)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return False
        if event.model != self._model or not self._same(event):
            return False
        if event.choices:
            if event.usage is not None or not self._said(event.choices[0]):
                return False
            self.id, self.created = event.id, event.created
            return True
        usage = _honest(event.usage) if event.usage is not None and self.finish is not None else None
        if usage is None:
            return False
        self.usage, self.closing = usage, data
        return True

    def _same(self, event: Event) -> bool:
        if self.id:
            return event.id == self.id and event.created == self.created
        return event.id.startswith(_PREFIX)

    def _said(self, part: Part) -> bool:
        content, reason = part.delta.content, part.finish_reason
        says = content is not UNSET and content != ""
        named = part.delta.role is not UNSET
        if named == self.role_sent or (self.role_sent and not says and reason is None):
            return False  # the role goes first, and once; nothing said is nothing sent
        self.role_sent = True
        self.started = self.started or says or reason is not None
        if reason is not None:
            self.finish = STOPS[reason]
        return True
