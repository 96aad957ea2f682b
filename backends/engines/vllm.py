"""vLLM (0.26 to 0.33): OpenAI server on uvicorn. Facts seen on 0.32."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from backends.contracts import EngineFailure, Fault, Load
from backends.counters import Copies, Counters
from backends.engines.base import EngineSpec
from backends.engines.errors import classify, opaque, read_error
from backends.engines.handover import Handover, Link, read, written
from backends.engines.jsonfacts import decoded, inner, known, number_format
from backends.engines.prometheus import Gauges

_RUNNING = "vllm:num_requests_running"
_WAITING = "vllm:num_requests_waiting"
_KV_USED = "vllm:kv_cache_usage_perc"
_CONFIG = "vllm:cache_config_info"
_GAUGES = Gauges(_RUNNING, _WAITING, _KV_USED, _CONFIG)
_GENERATED = "vllm:generation_tokens_total"
_DRAFTS = "vllm:spec_decode_num_drafts_total"
_ACCEPTED = "vllm:spec_decode_num_accepted_tokens_total"
# Bytes, seconds and number of copies over the link, each added up over the ranks; then of the reads of each lower tier.
_LOADS, _LOADED, _LOAD_S = (f"vllm:kv_offload_load_{name}" for name in ("size_count", "bytes_total", "time_total"))
_READ, _READ_S = "vllm:kv_offload_tiering_read_bytes_total", "vllm:kv_offload_tiering_read_time_total"
_COUNTERS = Gauges(_GENERATED, _DRAFTS, _ACCEPTED, _LOADS, _LOADED, _LOAD_S, _READ, _READ_S)
_SERVER_INFO = "/server_info?config_format=json"  # only with VLLM_SERVER_DEV_MODE=1
# Fields only the gateway sets: an engine that refuses one is not refusing the client.
_STEERING = re.compile(r"data_parallel_rank|kv_transfer_params|Duplicate request id", re.IGNORECASE)


_PAIRED_PATHS = frozenset({"/v1/chat/completions", "/v1/completions"})
# More than one sequence would read the same blocks several times; the rest needs what prefill alone has computed.
_ONE = frozenset({b"null", b"1"})
_OFF = frozenset({b"null", b"false"})
_DIVIDED = {"n": _ONE, "best_of": _ONE, "use_beam_search": _OFF, "prompt_logprobs": _OFF, "echo": _OFF}
# The prefill server's one token is thrown away, so nothing that asks for more than one is left in its request.
_NOT_FOR_PREFILL = ("max_completion_tokens", "stream", "stream_options", "min_tokens", "response_format",
                    "structured_outputs")  # fmt: skip
_REMOTE_DECODE = {
    "do_remote_decode": True,
    "do_remote_prefill": False,
    "remote_engine_id": None,
    "remote_block_ids": None,
    "remote_host": None,
    "remote_port": None,
}


class _Handed(msgspec.Struct):
    kv_transfer_params: msgspec.Raw = msgspec.Raw(b"null")


class VllmHandover:
    """Prefill answers with where its blocks lie; decode gets that and pulls them, once."""

    together = False
    alone = True

    def divides(self, path: str, body: bytes) -> bool:
        """Chat and Completions of one sequence."""
        if path not in _PAIRED_PATHS:
            return False
        fields = read(body)
        plain = all(bytes(fields.get(name, b"null")) in values for name, values in _DIVIDED.items())
        return plain and not _is_batch(bytes(fields.get("prompt", b"")))

    def prefill(self, body: bytes, link: Link) -> bytes:  # noqa: ARG002 - its answer names the place
        """The same prompt for one token. A streamed answer would not tell the blocks."""
        fields: dict[str, Any] = {name: value for name, value in read(body).items() if name not in _NOT_FOR_PREFILL}
        if bytes(fields.get("tool_choice", b"")) != b'"none"':
            fields.pop("tool_choice", None)  # one token of a required call would be no call
        return written({**fields, "max_tokens": 1, "kv_transfer_params": _REMOTE_DECODE})

    def decode(self, body: bytes, link: Link, answer: bytes) -> bytes:  # noqa: ARG002
        """The client's request with the prefill server's parameters, as they came."""
        try:
            handed = msgspec.json.decode(answer, type=_Handed).kv_transfer_params
        except msgspec.MsgspecError:
            handed = msgspec.Raw(b"null")
        if not bytes(handed).startswith(b"{"):
            raise EngineFailure(Fault.PROTOCOL, "the prefill server handed nothing over")
        return written({**read(body), "kv_transfer_params": handed})


def _is_batch(prompt: bytes) -> bool:
    """Whether a Completions prompt is a list of prompts, not one text or one list of token ids."""
    return prompt[:1] == b"[" and prompt[1:].lstrip()[:1] in (b'"', b"[", b"{")


class Vllm:
    """The `vllm` kind."""

    handover: Handover | None = VllmHandover()
    spec = EngineSpec(
        name="vllm",
        ready_path="/health",
        load_path="/metrics",
        counters_path="/metrics",
        abort_path="",  # it aborts within 0.3 s of the connection closing
        rid_field="request_id",
        reasoning_field="reasoning",
        idle_limit_s=4.0,  # uvicorn closes after 5 s
        lower_priority_first=True,
        fact_paths=("/metrics", _SERVER_INFO),
        cached_tokens_flag="--enable-prompt-tokens-details",
        paths=frozenset(
            {
                "/v1/chat/completions",
                "/v1/completions",
                "/v1/responses",
                "/v1/messages",
                "/v1/messages/count_tokens",
                "/v1/embeddings",
                "/v1/rerank",
                "/tokenize",
                "/detokenize",
                "/inference/v1/generate",
                "/generative_scoring",
                "/v1/chat/completions/render",
                "/v1/completions/render",
            },
        ),
    )

    def parse_load(self, body: bytes, now_s: float) -> Load:
        """Sum `/metrics` over the engines (one per DP rank); `kv_used` is their mean."""
        running = waiting = capacity = 0
        used: list[float] = []
        for name, labels, value in _GAUGES.samples(body):
            if name == _RUNNING:
                running += int(value)
            elif name == _WAITING:
                waiting += int(value)
            elif name == _KV_USED:
                used.append(value)
            else:
                capacity += _capacity(
                    labels.get("kv_cache_size_tokens"), labels.get("num_gpu_blocks"), labels.get("block_size")
                )
        share = sum(used) / len(used) if used else 0.0
        return Load(running=running, waiting=waiting, kv_used=share, kv_capacity_tokens=capacity, at_s=now_s)

    def parse_counters(self, body: bytes) -> Counters:
        """Sum `/metrics` over the engines. Reads of files are not counted one by one."""
        totals: dict[str, float] = {}
        for name, labels, value in _COUNTERS.samples(body):
            # A lower tier is named by its place and kind, e.g. "1:fs".
            if value > 0.0 and labels.get("tier", ":fs").endswith(":fs"):
                totals[name] = totals.get(name, 0.0) + value
        get = totals.get
        return Counters(
            generated=get(_GENERATED, 0.0),
            drafts=get(_DRAFTS, 0.0),
            accepted=get(_ACCEPTED, 0.0),
            host=Copies(count=get(_LOADS, 0.0), bytes=get(_LOADED, 0.0), seconds=get(_LOAD_S, 0.0)),
            fs=Copies(bytes=get(_READ, 0.0), seconds=get(_READ_S, 0.0)),
        )

    def failure(self, status: int, content_type: str, body: bytes, retry_after: str = "") -> EngineFailure:
        """Nested errors, Anthropic's on /v1/messages, a bare string for 401, `detail` from the router."""
        error = read_error(body)
        if error is None:
            return opaque(status, content_type, retry_after)
        return classify(error, status, steering=_STEERING, retry_after=retry_after)

    def frame_failure(self, payload: bytes) -> EngineFailure | None:
        """`{"error": {...}}` in a stream whose status was 200, and `response.failed`."""
        if b'"error"' not in payload:
            return None
        error = read_error(payload)
        return None if error is None else classify(error, 200, steering=_STEERING)

    def facts(self, path: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:
        """Cache geometry from /metrics, flags from /server_info, the frontend from who answers."""
        if path == "/metrics":
            return next((_cache(labels) for name, labels, _ in _GAUGES.samples(body) if name == _CONFIG), {})
        if path == _SERVER_INFO:
            return _config(decoded(body).get("vllm_config"))
        # uvicorn is the Python frontend; the Rust one does not call itself so.
        return {"frontend": "python" if headers.get("server") == "uvicorn" else "rust"}

    def constrained(self, form: Literal["regex", "grammar"], text: str) -> Mapping[str, Any]:
        """`structured_outputs`; the older guided_* fields are ignored without a word."""
        return {"structured_outputs": {form: text}}


def _cache(labels: Mapping[str, str]) -> Mapping[str, Any]:
    block = labels.get("block_size", "")
    return known(
        block_size=int(block) if block.isdecimal() else None,
        kv_dtype=number_format(labels.get("cache_dtype")),
        kv_layout=labels.get("kv_cache_layout"),
        hash_algorithm=labels.get("prefix_caching_hash_algo"),
    )


def _config(config: Any) -> Mapping[str, Any]:
    """Terms of `vllm_config`."""
    if not isinstance(config, dict):
        return {}
    model, scheduler = inner(config.get("model_config")), inner(config.get("scheduler_config"))
    draft = inner(config.get("speculative_config"))
    return known(
        revision=model.get("revision"),
        precision=number_format(model.get("quantization") or model.get("dtype")),
        logprobs=model.get("max_logprobs"),
        priority=scheduler.get("policy") == "priority" if scheduler else None,
        spec_method=draft.get("method") or "",
        spec_tokens=draft.get("num_speculative_tokens") or 0,
    )


def _capacity(tokens: str | None, blocks: str | None, block_size: str | None) -> int:
    """Tokens of KV on the GPU from the labels of `cache_config_info`; labels hold "None" for what is not set."""
    if tokens is not None and tokens.isdecimal():
        return int(tokens)
    if blocks is not None and block_size is not None and blocks.isdecimal() and block_size.isdecimal():
        return int(blocks) * int(block_size)
    return 0
