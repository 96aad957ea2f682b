"""Top-level request fields: their types, and whether they go on to the engine, are accepted, or are ignored."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Raw

from gateway.errors import Cause, GatewayError

_object = msgspec.json.Decoder(dict[str, Raw])
_SESSIONS = ("x-session-affinity", "session_id", "conversation_id", "x-claude-code-session-id")
_PLACE = re.compile(r" - at `\$(.*?)`$")


class Use(enum.Enum):
    """What becomes of a field."""

    FORWARD = "forward"  # the engine understands it
    READ = "read"  # the codec reads it and writes the engine's form
    ACCEPT = "accept"  # taken and echoed where the dialect echoes; changes nothing
    IGNORE = "ignore"  # changes nothing, and the client is told so


def _undecoded(value: Raw) -> Raw | None:
    return None if bytes(memoryview(value)[:5]) == b"null" else value


class Field:
    """One known field. `Raw` as its kind leaves it to the codec, because it is large."""

    __slots__ = ("decode", "use")

    def __init__(self, kind: Any, use: Use) -> None:
        self.decode = _undecoded if kind is Raw else msgspec.json.Decoder(kind).decode
        self.use = use


Count = Annotated[int, Meta(ge=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]
Share = Annotated[float, Meta(ge=0, le=1)]

# Understood by the engines under the same name, whatever the dialect.
SAMPLING: dict[str, Any] = {
    "temperature": Annotated[float, Meta(ge=0, le=2)] | None,
    "top_p": Share | None,
    "top_k": int | None,
    "min_p": Share | None,
    "seed": int | None,
    "presence_penalty": Penalty | None,
    "frequency_penalty": Penalty | None,
    "repetition_penalty": Annotated[float, Meta(gt=0)] | None,
    "logit_bias": dict[str, float] | None,
    "min_tokens": Annotated[int, Meta(ge=0)] | None,
    "ignore_eos": bool | None,
    "stop_token_ids": list[int] | None,
    "skip_special_tokens": bool | None,
}


def table(forward: Mapping[str, Any], read: Mapping[str, Any], accept: Mapping[str, Any]) -> dict[str, Field]:
    """A dialect's fields by name. What is in none of the three is ignored by name."""
    fields = {name: Field(kind, Use.FORWARD) for name, kind in forward.items()}
    fields |= {name: Field(kind, Use.READ) for name, kind in read.items()}
    return fields | {name: Field(kind, Use.ACCEPT) for name, kind in accept.items()}


def read_object(body: bytes) -> dict[str, Raw]:
    """The top-level fields of a request body. Raises GatewayError when it is no JSON object."""
    try:
        return _object.decode(body)
    except msgspec.ValidationError:
        raise GatewayError(Cause.BAD_REQUEST, "the body must be a JSON object") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise GatewayError(Cause.BAD_REQUEST, f"the body is not valid JSON: {error}") from None
    except RecursionError:
        raise GatewayError(Cause.BAD_REQUEST, "the body is nested too deeply") from None


def invalid(param: str, detail: str) -> GatewayError:
    """The error for a field with a wrong value."""
    return GatewayError(Cause.BAD_REQUEST, f"{param}: {detail}", param=param, code="invalid_value")


def unsupported(param: str, detail: str) -> GatewayError:
    """The error for a value that is understood but not served."""
    return GatewayError(Cause.UNSUPPORTED_VALUE, f"{param}: {detail}", param=param)


def missing(param: str) -> GatewayError:
    """The error for a required field that is not there."""
    detail = f"{param}: field required"
    return GatewayError(Cause.BAD_REQUEST, detail, param=param, code="missing_required_parameter")


def at(param: str, error: Exception) -> GatewayError:
    """msgspec's complaint about a value under `param`, with its place inside the value as part of the name."""
    text = str(error)
    place = _PLACE.search(text)
    if place is None:
        return invalid(param, text)
    inner = place[1].replace("[...]", "")
    return invalid(param + inner, text[: place.start()])


def read(param: str, decoder: Any, value: Raw) -> Any:
    """Decode a field's value. Raises GatewayError that names the field and the place in it."""
    try:
        return decoder(value)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise at(param, error) from None


def type_of(value: Any) -> str | None:
    """The `type` of an object; None for what is no object or names none."""
    kind = value.get("type") if isinstance(value, dict) else None
    return kind if isinstance(kind, str) else None


def object_of(value: Any, param: str) -> dict[str, Any]:
    """A decoded value that must be an object, {} for null. Raises GatewayError naming `param`."""
    if value is not None and not isinstance(value, dict):
        raise invalid(param, "expected an object")
    return value or {}


def list_of(value: Any, param: str) -> list[Any]:
    """A decoded value that must be a list, [] for null. Raises GatewayError naming `param`."""
    if value is not None and not isinstance(value, list):
        raise invalid(param, "expected a list")
    return value or []


def text_of(value: Any, param: str) -> str | None:
    """A decoded value that must be a string or null. Raises GatewayError naming `param`."""
    if value is not None and not isinstance(value, str):
        raise invalid(param, "expected a string")
    return value


def header_list(names: list[str]) -> str:
    """Names as a header value: printable ASCII, each once, no more than fits."""
    clean = ("".join(c for c in name if 32 < ord(c) < 127 and c != ",")[:80] for name in dict.fromkeys(names))
    return ", ".join(name for name in clean if name)[:1024]


def check(fields: Mapping[str, Raw], known: Mapping[str, Field]) -> tuple[dict[str, Any], dict[str, Raw], list[str]]:
    """Validate all fields. Returns (values of those that are set, those to forward, names of those without effect)."""
    values: dict[str, Any] = {}
    forward: dict[str, Raw] = {}
    ignored: list[str] = []
    for name, raw in fields.items():
        field = known.get(name)
        if field is None:
            ignored.append(name)
            continue
        value = read(name, field.decode, raw)
        if value is None:
            continue
        values[name] = value
        if field.use is Use.FORWARD:
            forward[name] = raw
        elif field.use is Use.IGNORE:
            ignored.append(name)
    return values, forward, ignored


def beyond(values: Mapping[str, Any], known: Mapping[str, frozenset[str]]) -> list[str]:
    """Names of what is in the objects `known`, and is not known there: it has no effect."""
    return [f"{name}.{key}" for name, keys in known.items() for key in values.get(name, ()) if key not in keys]


def session_of(headers: Mapping[str, str]) -> str | None:
    """The conversation that a client names in its headers: a hint for affinity, nothing more."""
    return next((headers[name] for name in _SESSIONS if name in headers), None)
