"""From a request body to a call: what was asked, in token ids and limits, whatever the engine kind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from backends.contracts import Tier
from backends.simulator.answers import Ask
from backends.simulator.calls import Call, Kind
from backends.simulator.options import SimOptions
from backends.simulator.tokenizer import Tokenizer, content_text
from backends.simulator.wire import Flavour, Served, number

_COMPLETION_TOKENS = 16  # both engines' default for completions


class Reader:
    """Reads bodies for one server."""

    def __init__(self, tokenizer: Tokenizer, flavour: Flavour, served: Served) -> None:
        self._tokenizer = tokenizer
        self._flavour = flavour
        self._served = served

    def read(self, kind: Kind, body: Mapping[str, Any], headers: Mapping[str, str], fresh: str) -> Call:
        """The call, its values not yet checked. `fresh` is a new id of 32 hex digits."""
        options = self._served.options
        effort = effort_of(body, options) if kind == "chat" else ""
        prompts = [self.chat_prompt(body, effort)] if kind == "chat" else self.prompts(body.get("prompt"))
        stream = bool(body.get("stream"))
        usage = body.get("stream_options") or {}
        return Call(
            kind=kind,
            body=body,
            id=self._flavour.id(kind, headers, body, fresh),
            model=str(body.get("model") or options.model),
            created=int(time.time()),
            prompts=prompts,
            asks=[self._ask(kind, body, prompt, effort) for prompt in prompts],
            n=1 if number(body.get("n")) is None else int(body["n"]),
            stream=stream,
            include_usage=stream and bool(usage.get("include_usage")),
            continuous_usage=stream and bool(usage.get("continuous_usage_stats")),
            logprobs=_logprobs(kind, body),
            return_ids=bool(body.get("return_token_ids")),
            salt=str(body.get("cache_salt") or "") + str(body.get("extra_key") or ""),
            priority=self._flavour.priority(headers, body),
            reasoning=bool(options.reasoning) and kind == "chat",
            report_cached=options.report_cached,
        )

    def chat_prompt(self, body: Mapping[str, Any], effort: str) -> list[int]:
        """Token ids of a chat."""
        messages = [message for message in body.get("messages") or () if isinstance(message, dict)]
        tools = body.get("tools") or ()
        shown = effort if self._served.options.reasoning == "glm" else ""
        return self._tokenizer.encode(self._tokenizer.chat(messages, tools, shown, thinking=bool(effort)))

    def prompts(self, prompt: Any) -> list[Sequence[int]]:
        """Token ids per prompt of a completions body: text, ids, or a list of either."""
        if isinstance(prompt, str):
            return [self._tokenizer.encode(prompt)]
        if not isinstance(prompt, list) or not prompt:
            return [[]]
        if all(isinstance(token, int) for token in prompt):
            return [prompt]
        return [one if isinstance(one, list) else self._tokenizer.encode(str(one)) for one in prompt]

    def _ask(self, kind: Kind, body: Mapping[str, Any], prompt: Sequence[int], effort: str) -> Ask:
        limit = number(body.get("max_completion_tokens")) or number(body.get("max_tokens"))
        if limit is None and kind == "completions" and "max_tokens" not in body:
            limit = _COMPLETION_TOKENS
        room = max(self._served.max_len - len(prompt), 1)
        stop = body.get("stop") or ()
        return Ask(
            prompt=prompt,
            last_text=_last_user_text(body) if kind == "chat" else "",
            effort=effort,
            thinking_budget=number(body.get("thinking_token_budget")),
            tools=[tool for tool in body.get("tools") or () if isinstance(tool, dict)],
            tool_choice=_tool_choice(body) if kind == "chat" else "none",
            grammar=_grammar(body),
            choices=_choices(body),
            max_tokens=max(min(limit if limit is not None else room, room), 1),
            min_tokens=number(body.get("min_tokens")) or 0,
            ignore_eos=bool(body.get("ignore_eos")),
            stop=[stop] if isinstance(stop, str) else [text for text in stop if isinstance(text, str)],
            keep_stop=bool(body.get("include_stop_str_in_output") or body.get("no_stop_trim")),
        )


def effort_of(body: Mapping[str, Any], options: SimOptions) -> str:
    """How hard the model thinks: "" not at all, else low, high or max. A GLM knows these three; all else is max."""
    if not options.reasoning:
        return ""
    kwargs = body.get("chat_template_kwargs") or {}
    asked = body.get("reasoning_effort", (body.get("reasoning") or {}).get("effort", kwargs.get("reasoning_effort")))
    if options.reasoning == "qwen":
        thinking = kwargs.get("enable_thinking", asked != "none")
        return "high" if thinking else ""
    return asked if asked in ("low", "high") else "max"


def load_from(body: Mapping[str, Any]) -> frozenset[Tier]:
    """Tiers that the request lets an engine load from: vLLM's kv_transfer_params can forbid some."""
    params = body.get("kv_transfer_params")
    params = params if isinstance(params, dict) else {}
    if params.get("max_load_tokens") == 0:
        return frozenset()
    tiers = params.get("kv_load_tiers")
    if isinstance(tiers, list) and not any(isinstance(t, dict) and t.get("medium") in ("STORAGE", "FS") for t in tiers):
        return frozenset({"host"})
    return frozenset({"host", "fs"})


def _logprobs(kind: Kind, body: Mapping[str, Any]) -> int | None:
    if kind == "completions":
        return number(body.get("logprobs"))
    return (number(body.get("top_logprobs")) or 0) if body.get("logprobs") else None


def _last_user_text(body: Mapping[str, Any]) -> str:
    messages = [m for m in body.get("messages") or () if isinstance(m, dict)]
    return content_text(messages[-1].get("content")) if messages and messages[-1].get("role") == "user" else ""


def _tool_choice(body: Mapping[str, Any]) -> str:
    choice = body.get("tool_choice", "auto" if body.get("tools") else "none")
    if isinstance(choice, dict):
        return str((choice.get("function") or {}).get("name", ""))
    return str(choice) if choice else "none"


def _grammar(body: Mapping[str, Any]) -> Any:
    shape = body.get("response_format") or {}
    if shape.get("type") == "json_schema":
        return (shape.get("json_schema") or {}).get("schema") or {}
    if shape.get("type") == "json_object":
        return {"type": "object", "properties": {"answer": {"type": "string"}}}
    return (body.get("structured_outputs") or {}).get("json")


def _choices(body: Mapping[str, Any]) -> Sequence[str]:
    return [str(choice) for choice in (body.get("structured_outputs") or {}).get("choice") or ()]
