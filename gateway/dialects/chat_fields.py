"""The fields of Chat and Completions requests, and the parts of both that are read alike."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Raw

from gateway.dialects.fields import SAMPLING, Count, invalid, table, type_of, unsupported
from gateway.dialects.model import Format, Reasoning

_ENGINE: dict[str, Any] = {
    "n": Count | None,
    "length_penalty": float | None,
    "bad_words": list[str] | None,
    "allowed_token_ids": list[int] | None,
    "include_stop_str_in_output": bool | None,
    "no_stop_trim": bool | None,
    "spaces_between_special_tokens": bool | None,
    "return_token_ids": bool | None,
    "return_tokens_as_token_ids": bool | None,
    "return_cached_tokens_details": bool | None,
    "return_meta_info": bool | None,
    "prompt_logprobs": int | None,
    "truncate_prompt_tokens": int | None,
    "add_special_tokens": bool | None,
    "structured_outputs": dict[str, Any] | None,
    "regex": str | None,
    "ebnf": str | None,
    "json_schema": str | None,
}
_STEERING: dict[str, Any] = {  # only present when the tenant was granted them
    "kv_transfer_params": dict[str, Any] | None,
    "ec_transfer_params": dict[str, Any] | None,
    "vllm_xargs": dict[str, Any] | None,
    "chat_template": str | None,
    "custom_logit_processor": Any,
    "custom_params": Any,
    "lora_path": Any,
    "data_parallel_rank": int | None,
    "routed_dp_rank": int | None,
    "priority": int | None,
    "rid": Any,
    "request_id": str | None,
    "session_id": str | None,
    "session_params": Any,
    "extra_key": Any,
    "input_ids": Any,
    "return_hidden_states": bool | None,
    "return_routed_experts": bool | None,
    "bootstrap_host": Any,
    "bootstrap_port": Any,
    "bootstrap_room": Any,
}
_READ: dict[str, Any] = {
    "model": str,
    "stream": bool | None,
    "stream_options": dict[str, Any] | None,
    "stop": str | list[str] | None,
    "max_tokens": Annotated[int, Meta(ge=0)] | None,
    "cache_salt": str | None,
    # engines once took these; now they ignore them with status 200
    "guided_json": dict[str, Any] | str | None,
    "guided_regex": str | None,
    "guided_choice": list[str] | None,
    "guided_grammar": str | None,
}
_ACCEPT: dict[str, Any] = {
    "user": str | None,
    "metadata": dict[str, Any] | None,
    "store": bool | None,
    "service_tier": str | None,
    "safety_identifier": str | None,
    "prompt_cache_key": str | None,
    "prompt_cache_retention": Any,
    "prompt_cache_options": Any,
}

CHAT = table(
    SAMPLING
    | _ENGINE
    | _STEERING
    | {
        "logprobs": bool | None,
        "top_logprobs": Annotated[int, Meta(ge=0, le=20)] | None,
        "parallel_tool_calls": bool | None,
        "add_generation_prompt": bool | None,
        "continue_final_message": bool | None,
        "echo": bool | None,
        "documents": list[Any] | None,
        "mm_processor_kwargs": dict[str, Any] | None,
    },
    _READ
    | {
        "messages": Raw,
        "tools": list[Raw] | None,
        "tool_choice": Any,
        "functions": list[Raw] | None,
        "function_call": Any,
        "response_format": dict[str, Any] | None,
        "max_completion_tokens": Count | None,
        "reasoning_effort": str | float | None,
        "reasoning": dict[str, Any] | None,
        "chat_template_kwargs": dict[str, Any] | None,
        "thinking_token_budget": int | None,
        "modalities": list[str] | None,
    },
    _ACCEPT,
)
COMPLETIONS = table(
    SAMPLING
    | _ENGINE
    | _STEERING
    | {
        "logprobs": Annotated[int, Meta(ge=0)] | None,
        "echo": bool | None,
        "best_of": Count | None,
        "suffix": str | None,
        "response_format": dict[str, Any] | None,
    },
    _READ | {"prompt": Raw},
    _ACCEPT,
)


INSIDE = {  # what is read of these fields
    "reasoning": frozenset({"effort", "enabled", "max_tokens"}),
    "stream_options": frozenset({"include_usage", "include_obfuscation"}),
}


def read_stops(value: str | list[str] | None) -> tuple[str, ...]:
    """`stop` as a tuple; empty strings stop nothing and are left out."""
    stops = [value] if isinstance(value, str) else value or []
    return tuple(stop for stop in stops if stop)


def read_format(value: dict[str, Any] | None) -> Format:
    """`response_format`. Raises GatewayError for an unknown type or a schema that is none."""
    if value is None:
        return Format()
    kind = type_of(value)
    if kind == "text":
        return Format()
    if kind == "json_object":
        return Format("json_object")
    if kind != "json_schema":
        raise unsupported("response_format.type", f"{kind!r} is not one of text, json_object, json_schema")
    inner = value.get("json_schema")
    if not isinstance(inner, dict) or not isinstance(inner.get("schema", {}), dict):
        raise invalid("response_format.json_schema", "expected an object with `name` and `schema`")
    return Format(
        "json_schema", str(inner.get("name") or "response"), inner.get("schema"), inner.get("strict"),
        inner.get("description"),
    )  # fmt: skip


_EFFORT_KWARGS = ("reasoning_effort", "enable_thinking", "thinking")


def read_reasoning(values: dict[str, Any]) -> tuple[Reasoning, dict[str, Any] | None]:
    """Effort by precedence: top level, `reasoning`, `chat_template_kwargs`. Returns it and the kwargs left over."""
    nested = values.get("reasoning") or {}
    kwargs = values.get("chat_template_kwargs") or {}
    off = nested.get("enabled") is False or kwargs.get("enable_thinking") is False or kwargs.get("thinking") is False
    effort = values.get("reasoning_effort")
    for source, key in ((nested, "effort"), (kwargs, "reasoning_effort")):
        effort = source.get(key) if effort is None else effort
    if effort is None and off:
        effort = "none"
    rest = {key: value for key, value in kwargs.items() if key not in _EFFORT_KWARGS}
    budget = values.get("thinking_token_budget", nested.get("max_tokens"))
    if budget is not None and not isinstance(budget, int):
        raise invalid("reasoning.max_tokens", "expected a number of tokens")
    return Reasoning(effort, budget, clear=kwargs.get("clear_thinking")), rest or None


def check_choices(values: dict[str, Any], limit: int) -> int:
    """`n`, within the gateway's limit."""
    n: int = values.get("n", 1)
    if n > limit:
        raise unsupported("n", f"at most {limit} choices are served")
    return n


def read_include_usage(values: dict[str, Any]) -> bool:
    """`stream_options.include_usage`; stream options without a stream are refused as OpenAI does."""
    options = values.get("stream_options")
    if options is None:
        return False
    if not values.get("stream"):
        raise invalid("stream_options", "only allowed when `stream` is true")
    return options.get("include_usage") is True


_STRUCTURED = {"guided_json": "json", "guided_regex": "regex", "guided_choice": "choice", "guided_grammar": "grammar"}
_GRAMMARS = ("guided_grammar", "ebnf")
_REGEXES = ("guided_regex", "guided_choice", "regex")


def guided(values: dict[str, Any]) -> dict[str, Any]:
    """vLLM's former `guided_*` fields as `structured_outputs`; {} without any."""
    return {key: values[name] for name, key in _STRUCTURED.items() if name in values}


def constraint(values: dict[str, Any]) -> Literal["regex", "grammar"] | None:
    """Which kind of constraint beyond `response_format` a request sets."""
    nested = values.get("structured_outputs") or {}
    if "grammar" in nested or any(name in values for name in _GRAMMARS):
        return "grammar"
    if {"regex", "choice"} & nested.keys() or any(name in values for name in _REGEXES):
        return "regex"
    return None
