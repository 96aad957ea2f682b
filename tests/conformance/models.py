"""The official SDKs' typed models, by event type, and strict validation against them."""

from __future__ import annotations

import json
import typing

import anthropic.types as at
import openai.types.responses
import pydantic
from openai.types.responses import response_content_part_added_event as _rcpa
from openai.types.responses import response_content_part_done_event as _rcpd
from openai.types.responses import response_output_item as _roi
from openai.types.responses.response_stream_event import ResponseStreamEvent


def _union_args(tp):
    while typing.get_origin(tp) is typing.Annotated:
        tp = typing.get_args(tp)[0]
    return [a for a in typing.get_args(tp) if isinstance(a, type)]


def _by_type(union):
    out = {}
    for cls in _union_args(union):
        lit = typing.get_args(cls.model_fields["type"].annotation)
        for v in lit:
            out[v] = cls
    return out


RESPONSES_EVENTS = _by_type(ResponseStreamEvent)
MESSAGES_EVENTS = _by_type(at.RawMessageStreamEvent)
TERMINAL_RESPONSES = ("response.completed", "response.incomplete", "response.failed")
CHAT_FINISH = {"stop", "length", "tool_calls", "content_filter", "function_call"}
STOP_REASONS = {
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
}
ANTHROPIC_ERRORS = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}


def _other_branch(err, obj):
    """True when a union error belongs to a member whose `type` is not the object's own."""
    here = obj
    for x in err["loc"]:
        if isinstance(x, str) and x[:1].isupper():
            t = here.get("type") if isinstance(here, dict) else None
            cls = next(
                (c for m in (at, openai.types.responses, _roi, _rcpa, _rcpd) if (c := getattr(m, x, None)) is not None),
                None,
            )
            f = getattr(cls, "model_fields", {}).get("type") if cls else None
            return bool(t and f is not None and t not in typing.get_args(f.annotation))
        try:
            here = here[x]
        except (KeyError, IndexError, TypeError):
            return False
    return False


def strict(cls, obj, where=""):
    """Validate a plain dict against the SDK's typed model; returns a list of short error strings."""
    try:
        cls.model_validate(obj)
        return []
    except pydantic.ValidationError as e:
        errs = [x for x in e.errors() if not _other_branch(x, obj)] or e.errors()
        return [f"{where}{'.'.join(str(x) for x in err['loc'])}: {err['msg']}" for err in errs[:6]]


def is_json_object(s):
    try:
        return isinstance(json.loads(s), dict)
    except (ValueError, TypeError):
        return False
