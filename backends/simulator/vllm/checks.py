"""What vLLM refuses, in its own words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from backends.simulator.calls import Call, Kind
from backends.simulator.wire import Refusal, Served, has_image, number, validation_issues

_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")


def error(status: int, message: str, kind: str = "BadRequestError", param: str | None = None) -> Refusal:
    """vLLM's nested error body."""
    return Refusal(status, {"error": {"message": message, "type": kind, "param": param, "code": status}})


def parse(kind: Kind, body: bytes, content_type: str) -> dict[str, Any]:
    """The body as an object; schema errors are 400 of type "Bad Request", all in one message."""
    if not content_type.startswith("application/json"):
        message = "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed"
        raise error(400, message, "Bad Request")
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        where = f"body.{len(body)}"
        issue = {
            "type": "json_invalid",
            "loc": where,
            "msg": "JSON decode error",
            "input": "<dict of 0 items>",
            "ctx": {"error": "Expecting value"},
        }
        raise error(400, f"1 validation error:\n  {issue}", "Bad Request", where) from None
    if not isinstance(parsed, dict):
        raise error(400, "1 validation error:\n  Input should be a valid dictionary", "Bad Request", "body")
    _check_schema(kind, parsed)
    return parsed


def check(call: Call, served: Served) -> None:
    """Model, parameters, tools, images, lengths."""
    check_model(call.model, served)
    _check_parameters(call, served)
    if call.kind == "chat":
        _check_chat(call, served)
    elif not any(call.prompts):
        raise _bad("Either prompt or prompt_embeds must be provided and non-empty.", "prompt")
    _check_length(call, served.max_len)


def check_model(name: Any, served: Served) -> None:
    """404 for a name that is not served."""
    names = (served.options.model, *served.options.aliases)
    if name is not None and name not in names:
        message = f"The model `{name}` does not exist. Valid aliases: {', '.join(names)}."
        raise error(404, message, "NotFoundError", "model")


def _bad(message: str, param: str, value: Any = None) -> Refusal:
    detail = f"parameter={param}" if value is None else f"parameter={param}, value={value}"
    return error(400, f"{message} ({detail})", param=param)


def _check_schema(kind: Kind, body: Mapping[str, Any]) -> None:
    issues = [
        {**issue, "loc": ".".join(issue["loc"]), "input": _shown(issue["input"])}
        for issue in validation_issues(kind, body)
    ]
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in _EFFORTS:
        expected = ", ".join(f"'{e}'" for e in _EFFORTS[:-1]) + " or 'max'"
        issues.append(
            {
                "type": "literal_error",
                "loc": "body.reasoning_effort",
                "msg": f"Input should be {expected}",
                "input": effort,
                "ctx": {"expected": expected},
            }
        )
    if issues:
        count = f"{len(issues)} validation error{'s' if len(issues) > 1 else ''}"
        lines = "\n".join(f"  {issue}" for issue in issues)
        raise error(400, f"{count}:\n{lines}", "Bad Request", issues[0]["loc"])


def _shown(value: Any) -> Any:
    return f"<dict of {len(value)} items>" if isinstance(value, dict) else value


def _check_parameters(call: Call, served: Served) -> None:
    body = call.body
    if body.get("stream_options") is not None and not call.stream:
        raise _bad("Stream options can only be defined when `stream=True`.", "stream_options")
    asked = number(body.get("max_completion_tokens")) or number(body.get("max_tokens"))
    if asked is not None and asked < 1 and call.kind == "chat":
        raise _bad(f"max_tokens must be at least 1, got {asked}.", "max_tokens", asked)
    if asked is not None and asked > served.max_len:
        message = f"max_tokens={asked} cannot be greater than max_model_len={served.max_len}."
        raise _bad(f"{message} Please request fewer output tokens.", "max_tokens", asked)
    if call.n < 1:
        raise error(400, f"n must be at least 1, got {call.n}.")
    _check_sampling(body)
    if call.logprobs is not None and call.logprobs > 20:
        message = f"Requested sample logprobs of {call.logprobs}, which is greater than max allowed: 20"
        raise _bad(message, "logprobs", call.logprobs)
    if body.get("cache_salt") == "":
        raise _bad("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")
    if call.kind == "completions" and body.get("suffix"):
        raise error(400, "suffix is only supported for models with FIM completion rendering", param="suffix")


def _check_sampling(body: Mapping[str, Any]) -> None:
    temperature, top_p = body.get("temperature"), body.get("top_p")
    if temperature is not None and temperature < 0:
        message = f"temperature must be non-negative, got {float(temperature)}."
        raise _bad(message, "temperature", float(temperature))
    if top_p is not None and not 0 < top_p <= 1:
        raise _bad(f"top_p must be in (0, 1], got {float(top_p)}.", "top_p", float(top_p))


def _check_chat(call: Call, served: Served) -> None:
    body = call.body
    if not body["messages"]:
        message = "Cannot apply chat template to an empty conversation. Provide at least one message."
        raise error(400, message)
    choice = body.get("tool_choice")
    if choice not in (None, "none", "auto") and not body.get("tools"):
        raise _bad("When using `tool_choice`, `tools` must be set.", "tool_choice")
    wanted = call.asks[0].tool_choice
    known = {tool.get("function", {}).get("name") for tool in body.get("tools") or ()}
    if wanted not in ("none", "auto", "required", *known):
        raise _bad("The tool specified in `tool_choice` does not match any of the specified `tools`", "tool_choice")
    if has_image(body["messages"]) and not served.options.images:
        raise error(400, f"{call.model} is not a multimodal model")


def _check_length(call: Call, limit: int) -> None:
    longest = max(map(len, call.prompts))
    head = f"This model's maximum context length is {limit} tokens. However, "
    if longest >= limit:
        raise _bad(
            f"{head}your prompt contains at least {limit + 1} input tokens, which exceeds this limit even without any "
            "output tokens. Please reduce the length of the input prompt.",
            "input_tokens",
            limit + 1,
        )
    asked = number(call.body.get("max_completion_tokens")) or number(call.body.get("max_tokens"))
    if asked is not None and longest + asked > limit:
        raise _bad(
            f"{head}you requested {asked} output tokens and your prompt contains at least {longest} input tokens, for "
            f"a total of at least {longest + asked} tokens. Please reduce the length of the input prompt or the number "
            "of requested output tokens.",
            "input_tokens",
            longest,
        )
