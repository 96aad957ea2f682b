"""What SGLang refuses, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from backends.simulator.calls import Call, Kind
from backends.simulator.wire import Refusal, Served, has_image, number, validation_issues

_SOURCE = "/opt/sglang/lib/python3.12/site-packages/sglang/srt/entrypoints/http_server.py"
_ROUTES: Mapping[Kind, tuple[int, str, str]] = {
    "chat": (1870, "openai_v1_chat_completions", "/v1/chat/completions"),
    "completions": (1852, "openai_v1_completions", "/v1/completions"),
}
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max", "ultra")
_STEERED = ("routed_dp_rank", "data_parallel_rank")


def error(status: int, message: str, kind: str = "BadRequestError") -> Refusal:
    """SGLang's flat error body."""
    return Refusal(status, {"object": "error", "message": message, "type": kind, "param": None, "code": status})


def parse(kind: Kind, body: bytes, content_type: str) -> dict[str, Any]:
    """The body as an object; schema errors are 400 of type "Bad Request", and tell input and source path."""
    if not content_type.startswith("application/json"):
        message = "Unsupported Media Type: Only 'application/json' is allowed"
        issue: dict[str, Any] = {"loc": ["header", "content-type"], "msg": message, "type": "value_error"}
        raise error(400, f"1 validation error:\n  {issue} [{issue}]", "Bad Request")
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        context = {"error": "unexpected character"}
        issue = {"type": "json_invalid", "loc": ("body", 1), "msg": "JSON decode error", "input": {}, "ctx": context}
        raise _invalid(kind, [issue]) from None
    if not isinstance(parsed, dict):
        raise _invalid(kind, [{"type": "model_attributes_type", "loc": ("body",), "msg": "Input should be an object"}])
    issues = validation_issues(kind, parsed) + _effort_issue(parsed)
    if kind == "completions" and "prompt" not in parsed:
        issues.append({"type": "missing", "loc": ("body", "prompt"), "msg": "Field required", "input": parsed})
    if issues:
        raise _invalid(kind, issues)
    return parsed


def check(call: Call, served: Served) -> None:
    """Ranks, tools and lengths. The model's name is not looked at."""
    body = call.body
    for field in _STEERED:
        rank = number(body.get(field))
        if rank:
            raise error(400, f"routed_dp_rank={rank} out of range [0, 1)")
    if call.kind == "chat":
        _check_chat(call, served)
    if call.n < 1:
        raise error(400, "n must be at least 1.")
    _check_length(call, served.max_len)


def _check_chat(call: Call, served: Served) -> None:
    body = call.body
    if not body["messages"]:
        raise error(400, "Messages cannot be empty.")
    wanted = call.asks[0].tool_choice
    if body.get("tool_choice") not in (None, "none", "auto") and not body.get("tools"):
        raise error(400, "Tools cannot be empty if tool choice is set to required.")
    known = {tool.get("function", {}).get("name") for tool in body.get("tools") or ()}
    if wanted not in ("none", "auto", "required", *known):
        raise error(400, f"Tool '{wanted}' not found in tools list.")
    if has_image(body["messages"]) and not served.options.images:
        raise error(400, "This model does not take images.")


def _check_length(call: Call, limit: int) -> None:
    longest = max(map(len, call.prompts))
    if longest >= limit:
        raise error(400, f"The input ({longest} tokens) is longer than the model's context length ({limit} tokens).")
    asked = number(call.body.get("max_completion_tokens")) or number(call.body.get("max_tokens"))
    if asked is not None and longest + asked > limit:
        raise error(
            400,
            f"Requested token count exceeds the model's maximum context length of {limit} tokens. You requested a total"
            f" of {longest + asked} tokens: {longest} tokens from the input messages and {asked} tokens for the "
            "completion. Please reduce the number of tokens in the input messages or the completion to fit within the "
            "limit.",
        )


def _effort_issue(body: Mapping[str, Any]) -> list[dict[str, Any]]:
    effort = body.get("reasoning_effort")
    if effort is None or effort in _EFFORTS or (isinstance(effort, float) and 0 <= effort <= 0.99):
        return []
    message = "Input should be " + " or ".join(map(repr, _EFFORTS))
    return [{"type": "literal_error", "loc": ("body", "reasoning_effort"), "msg": message, "input": effort}]


def _invalid(kind: Kind, issues: list[dict[str, Any]]) -> Refusal:
    line, function, path = _ROUTES[kind]
    count = f"{len(issues)} validation error{'s' if len(issues) > 1 else ''}"
    listed = "\n".join(f"  {issue}" for issue in issues)
    where = f'  File "{_SOURCE}", line {line}, in {function}\n    POST {path} {issues}'
    return error(400, f"{count}:\n{listed}\n\n{where}", "Bad Request")
