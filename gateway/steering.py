"""Request fields that steer an engine rather than describe a request. Of a client's headers none reaches an engine.

One of them, malformed, ends a vLLM engine (`kv_transfer_params` without the peer's address); others choose a
data-parallel rank, jump the queue, share or probe another tenant's cache, name a request that is not the
client's, or run code. They are taken out unless the tenant was granted them by name.
"""

from __future__ import annotations

from typing import Final

import msgspec

STEERING_FIELDS: Final = frozenset({
    # where KV blocks and encoder outputs come from and go to
    "kv_transfer_params", "ec_transfer_params", "kv_hints", "decode_tp_size",
    # which rank, when, and under which name
    "data_parallel_rank", "priority", "routing_key", "request_id", "rid", "session_id", "session_params",
    "parent_session_id", "conversation_id", "http_worker_ipc", "external_trace_header", "custom_labels", "no_logs",
    # the namespace of the prefix cache
    "cache_salt", "extra_key", "mm_hashes",
    # code and weights
    "custom_logit_processor", "custom_params", "logits_processors", "vllm_xargs", "extra_args", "chat_template",
    "lora_path", "lora_id", "lora_request",
    # inputs that go round the template and the checks
    "input_ids", "input_embeds", "prompt_embeds", "positional_embed_overrides",
    # answers of the size of the model
    "return_hidden_states", "return_routed_experts", "routed_experts_start_len", "return_bytes", "return_entropy",
})  # fmt: skip
_STEERING_PREFIXES = ("bootstrap_", "disagg_")
_STEERING_SUFFIX = "_dp_rank"

# What ordinary requests consist of. A body with nothing else is done after one set comparison.
_ORDINARY: Final = frozenset({
    "model", "messages", "prompt", "input", "stream", "stream_options", "max_tokens", "max_completion_tokens",
    "max_output_tokens", "temperature", "top_p", "top_k", "min_p", "n", "stop", "stop_sequences", "seed", "tools",
    "tool_choice", "parallel_tool_calls", "response_format", "frequency_penalty", "presence_penalty",
    "repetition_penalty", "logit_bias", "logprobs", "top_logprobs", "user", "metadata", "store", "service_tier",
    "reasoning", "reasoning_effort", "thinking", "system", "instructions", "include",
    "previous_response_id", "truncation", "output_config", "verbosity", "text", "echo", "suffix", "best_of",
    "encoding_format", "dimensions", "query", "documents", "top_n", "safety_identifier", "prompt_cache_key",
})  # fmt: skip

# Fields whose members carry those above: vLLM's token-in, token-out endpoint takes sampling parameters as they are, and
# SGLang hands the template's arguments to its renderer, which takes a `chat_template` among them.
_NESTED = ("sampling_params", "chat_template_kwargs")
_split_object = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_encode = msgspec.json.Encoder().encode


def _steers(name: str) -> bool:
    return name in STEERING_FIELDS or name.startswith(_STEERING_PREFIXES) or name.endswith(_STEERING_SUFFIX)


def strip_fields(fields: dict[str, msgspec.Raw], grants: frozenset[str]) -> tuple[str, ...]:
    """Take the steering fields that are not in `grants` out of a body; returns their names, sorted.

    `fields` is changed in place, and only when something is returned.
    """
    if fields.keys() <= _ORDINARY:
        return ()
    stripped = _take_out(fields, grants)
    for outer in _NESTED:
        if outer in fields:
            stripped += _strip_nested(fields, outer, grants)
    return tuple(sorted(stripped))


def _take_out(fields: dict[str, msgspec.Raw], grants: frozenset[str]) -> list[str]:
    names = [name for name in fields if name not in _ORDINARY and name not in grants and _steers(name)]
    for name in names:
        del fields[name]
    return names


def _strip_nested(fields: dict[str, msgspec.Raw], outer: str, grants: frozenset[str]) -> list[str]:
    """The same for the members of `outer`. What is no object is left to the engine to refuse."""
    try:
        inner = _split_object(fields[outer])
    except msgspec.DecodeError:
        return []
    names = _take_out(inner, grants)
    if names:
        fields[outer] = msgspec.Raw(_encode(inner))
    return [f"{outer}.{name}" for name in names]
