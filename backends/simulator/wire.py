"""What an engine kind puts on the wire: the contract of a flavour, and what the flavours share."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from backends.profiles import Profile
from backends.simulator.answers import Token
from backends.simulator.calls import Call, Choice, Kind, Usage
from backends.simulator.engine import EngineState, Scheduling
from backends.simulator.metrics import Counters
from backends.simulator.options import SimOptions
from backends.simulator.tiers import Copied

encode = msgspec.json.encode
DONE = b"[DONE]"


class Refusal(Exception):  # noqa: N818 - an answer of the engine, not a bug
    """An answer that is no success: a status and a JSON body, or, with `frames`, a stream under status 200."""

    def __init__(self, status: int, body: Any, frames: Sequence[bytes] = ()) -> None:
        super().__init__(status)
        self.status = status
        self.body = body
        self.frames = frames


@dataclass(frozen=True, slots=True)
class Served:
    """The facts of a server that its answers show."""

    options: SimOptions
    profile: Profile
    started: int  # Unix seconds

    @property
    def max_len(self) -> int:
        """The longest context, in tokens."""
        return self.options.max_model_len or self.profile.max_model_len


@dataclass(frozen=True, slots=True)
class Facts:
    """What an informational endpoint may show."""

    served: Served
    state: EngineState
    counters: Counters
    loaded: Copied
    read: Copied
    kv_port: int | None
    replay_port: int | None
    in_flight: int  # generations being answered
    draining: bool
    now_s: float  # Unix time


class Flavour(Protocol):
    """One engine kind on the wire. Stateless."""

    scheduling: Scheduling
    get_paths: frozenset[str]  # GET endpoints with a JSON or text answer, see `info`
    health_paths: Mapping[str, float]  # those of them that tell health, and the seconds each takes at least
    generate_paths: Mapping[str, Kind]
    tokenize_paths: frozenset[str]
    detokenize_paths: frozenset[str]
    flush_paths: frozenset[str]
    abort_path: str  # POST {rid} or {abort_all}; "" when there is none
    early_headers: bool  # streams send status and headers before the first token
    notice_s: tuple[float, float]  # how long after a disconnect a stream, and a request without one, is aborted

    def guarded(self, path: str) -> bool:
        """Whether `path` needs the API key."""
        ...

    def parse(self, kind: Kind, body: bytes, content_type: str) -> dict[str, Any]:
        """The body as an object, its schema checked. Raises Refusal."""
        ...

    def id(self, kind: Kind, headers: Mapping[str, str], body: Mapping[str, Any], fresh: str) -> str:
        """The id of the answer; `fresh` is 32 hex digits to use when the request names none."""
        ...

    def check_model(self, body: Mapping[str, Any], served: Served) -> None:
        """Raises Refusal when the body names a model that is not served."""
        ...

    def check(self, call: Call, served: Served) -> None:
        """Everything an engine refuses once the prompt is tokenised. Raises Refusal."""
        ...

    def priority(self, headers: Mapping[str, str], body: Mapping[str, Any]) -> int:
        """The request's priority, lower is sooner."""
        ...

    def queue_full(self, call: Call) -> Refusal:
        """The refusal when the queue limit is reached."""
        ...

    def duplicate(self, call: Call) -> Refusal | None:
        """The refusal for an id that is running already; None when the kind does not mind."""
        ...

    def internal_error(self) -> Refusal:
        """Status 500."""
        ...

    def error_frame(self) -> bytes:
        """An error in the middle of a stream, as one payload."""
        ...

    def opening(self, call: Call, usage: Usage | None) -> Iterator[bytes]:
        """Payloads before the first token."""
        ...

    def frames(self, call: Call, choice: Choice, tokens: Sequence[Token], usage: Usage | None) -> Iterator[bytes]:
        """Payloads of new tokens. `usage` is given when continuous usage was asked for."""
        ...

    def ending(
        self, call: Call, choice: Choice, token: Token | None, usage: Usage | None, *, last: bool
    ) -> Iterator[bytes]:
        """Payloads that end one choice with its last token (None after an abort); `last`: no other one is open."""
        ...

    def closing(self, call: Call, usage: Usage) -> Iterator[bytes]:
        """Payloads after all choices, without the final [DONE]."""
        ...

    def whole(self, call: Call, usage: Usage) -> Any:
        """The JSON body of an answer that is not streamed."""
        ...

    def info(self, path: str, facts: Facts) -> tuple[int, Any]:
        """Status and body of a GET endpoint: an object for JSON, a str for plain text, None for an empty body."""
        ...

    def flush(self, asked: Mapping[str, Any], *, busy: bool) -> tuple[int, Any, bool]:
        """Status and answer of a cache reset, and whether it clears host memory too."""
        ...

    def tokenized(self, tokens: Sequence[int], strings: Sequence[str] | None, served: Served) -> Any:
        """Answer of /tokenize."""
        ...

    def detokenized(self, text: str) -> Any:
        """Answer of /detokenize."""
        ...


def number(value: Any) -> int | None:
    """An int, or None for anything else (bools included)."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def validation_issues(kind: Kind, body: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the request schema would refuse, as pydantic reports it (without the input)."""
    issues = []
    if kind == "chat" and "messages" not in body:
        issues.append({"type": "missing", "loc": ("body", "messages"), "msg": "Field required", "input": body})
    for field, fits, error, message in _FIELDS:
        value = body.get(field)
        if value is not None and not fits(value):
            issues.append({"type": error, "loc": ("body", field), "msg": message, "input": value})
    return issues


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float)


def _is_int(value: Any) -> bool:
    return number(value) is not None


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)


def _is_format(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("json_schema") or {}, dict)


_NOT_AN_OBJECT = "Input should be a valid dictionary"
_NOT_A_NUMBER = "Input should be a valid number, unable to parse string as a number"
_NOT_AN_INTEGER = "Input should be a valid integer, unable to parse string as an integer"
_FIELDS: tuple[tuple[str, Callable[[Any], bool], str, str], ...] = (
    ("messages", lambda value: isinstance(value, list), "list_type", "Input should be a valid list"),
    ("temperature", _is_number, "float_parsing", _NOT_A_NUMBER),
    ("top_p", _is_number, "float_parsing", _NOT_A_NUMBER),
    ("max_tokens", _is_int, "int_parsing", _NOT_AN_INTEGER),
    ("max_completion_tokens", _is_int, "int_parsing", _NOT_AN_INTEGER),
    ("n", _is_int, "int_parsing", _NOT_AN_INTEGER),
    ("priority", _is_int, "int_parsing", _NOT_AN_INTEGER),
    ("stream", lambda value: isinstance(value, bool), "bool_parsing", "Input should be a valid boolean"),
    ("tools", lambda value: isinstance(value, list), "list_type", "Input should be a valid list"),
    ("stop", lambda value: isinstance(value, str | list), "string_type", "Input should be a valid string"),
    ("response_format", _is_format, "model_attributes_type", _NOT_AN_OBJECT),
    ("structured_outputs", _is_object, "model_attributes_type", _NOT_AN_OBJECT),
    ("stream_options", _is_object, "model_attributes_type", _NOT_AN_OBJECT),
    ("chat_template_kwargs", _is_object, "dict_type", _NOT_AN_OBJECT),
    ("reasoning", _is_object, "model_attributes_type", _NOT_AN_OBJECT),
)


def has_image(messages: Sequence[Any]) -> bool:
    """Whether any message has a part that is not text."""
    return any(
        isinstance(part, dict) and part.get("type") != "text"
        for message in messages
        if isinstance(message, dict) and isinstance(message.get("content"), list)
        for part in message["content"]
    )
