"""The Response resource: what it repeats of the request, and its counts."""

from __future__ import annotations

from typing import Any

from gateway.dialects.base import Usage
from gateway.dialects.ids import Ids
from gateway.dialects.model import Request

_TIERS = {"auto", "default", "flex", "scale", "priority"}


def echo(values: dict[str, Any], *, store: bool) -> dict[str, Any]:
    """The part of a resource that repeats the request. Everything that clients expect is there, null if need be."""
    reasoning = values.get("reasoning") or {}
    text = values.get("text") or {}
    tier = values.get("service_tier")
    return {
        "background": values.get("background", False),
        "frequency_penalty": values.get("frequency_penalty", 0.0),
        "instructions": values.get("instructions"),
        "max_output_tokens": values.get("max_output_tokens"),
        "max_tool_calls": values.get("max_tool_calls"),
        "metadata": values.get("metadata") or {},
        "model": values["model"],
        "parallel_tool_calls": values.get("parallel_tool_calls", True),
        "presence_penalty": values.get("presence_penalty", 0.0),
        "previous_response_id": values.get("previous_response_id"),
        "prompt_cache_key": values.get("prompt_cache_key"),
        "reasoning": {"effort": reasoning.get("effort"), "summary": reasoning.get("summary")},
        "safety_identifier": values.get("safety_identifier"),
        "service_tier": tier if tier in _TIERS - {"auto"} else "default",
        "store": store,
        "temperature": values.get("temperature", 1.0),
        "text": {"format": text.get("format") or {"type": "text"}, "verbosity": text.get("verbosity", "medium")},
        "tool_choice": values.get("tool_choice", "auto"),
        "tools": [_tool(tool) for tool in values.get("tools", ())],
        "top_logprobs": values.get("top_logprobs", 0),
        "top_p": values.get("top_p", 1.0),
        "truncation": values.get("truncation", "disabled"),
        "user": values.get("user"),
    }


def _tool(tool: dict[str, Any]) -> dict[str, Any]:
    """Functions are strict unless the client said otherwise, and have all their keys."""
    if tool.get("type") != "function":
        return tool
    return {"description": None, "parameters": None, "strict": True} | tool


def resource(request: Request, ids: Ids, status: str, output: list[dict[str, Any]], **fields: Any) -> dict[str, Any]:
    """A resource in a given state. `fields`: error, incomplete_details, usage, completed_at."""
    changing = {"completed_at": None, "error": None, "incomplete_details": None, "usage": None} | fields
    head = {"id": ids.answer, "object": "response", "created_at": ids.created, "status": status}
    return head | request.echo | {"output": output} | changing


def usage_record(usage: Usage) -> dict[str, Any]:
    """Counts as Responses has them: both detail objects are required."""
    return {
        "input_tokens": usage.prompt,
        "input_tokens_details": {"cached_tokens": usage.cached or 0, "cache_write_tokens": usage.cache_write or 0},
        "output_tokens": usage.completion,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning},
        "total_tokens": usage.prompt + usage.completion,
    }
