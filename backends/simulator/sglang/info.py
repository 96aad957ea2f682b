"""What an SGLang server says of itself on its GET endpoints, and the NIM around one."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from backends.simulator.metrics import Sample, exposition
from backends.simulator.wire import Facts

VERSION = "0.5.23"


def sglang_info(path: str, facts: Facts) -> tuple[int, Any]:
    """Status and body of one of `SGLANG_PATHS`."""
    if facts.draining and path in ("/ready", "/health", "/health_generate"):
        return 503, None
    return 200, _SGLANG[path](facts)


def nim_info(path: str, facts: Facts) -> tuple[int, Any]:
    """Status and body of one of `NIM_PATHS`."""
    if facts.draining and path == "/v1/health/ready":
        return 503, {"object": "health.response", "message": "Service is not ready.", "status": "not_ready"}
    return 200, _NIM[path](facts)


def _empty(facts: Facts) -> None:  # noqa: ARG001 - health bodies are empty
    return None


def _models(facts: Facts) -> Any:
    model = facts.served.options.model
    card = {
        "id": model,
        "object": "model",
        "created": facts.served.started,
        "owned_by": "sglang",
        "root": model,
        "parent": None,
        "max_model_len": facts.served.max_len,
    }
    return {"object": "list", "data": [card]}


def _model_info(facts: Facts) -> Any:
    model = facts.served.options.model
    reasoning = facts.served.options.reasoning
    return {
        "model_path": f"/models/{model}",
        "served_model_name": model,
        "tokenizer_path": f"/models/{model}",
        "is_generation": True,
        "weight_version": "default",
        "reasoning_parser": "glm45" if reasoning else None,
        "tool_call_parser": "glm47",
        "disaggregation_mode": "null",
        "model_type": "glm4_moe",
        "architectures": ["Glm4MoeForCausalLM"],
        "has_image_understanding": facts.served.options.images,
    }


def _server_info(facts: Facts) -> Any:
    served = facts.served
    profile = served.profile
    return _model_info(facts) | {
        "host": served.options.host,
        "port": served.options.port,
        "page_size": profile.block_tokens,
        "context_length": served.max_len,
        "chunked_prefill_size": profile.max_step_tokens,
        "max_running_requests": profile.max_batch,
        "max_queued_requests": served.options.max_queued,
        "kv_cache_dtype": "auto",
        "quantization": None,
        "enable_hierarchical_cache": profile.host is not None,
        "hicache_storage_backend": "file" if profile.fs is not None else None,
        "hicache_mem_layout": "page_first",
        "enable_cache_report": served.options.report_cached,
        "enable_priority_scheduling": True,
        "speculative_algorithm": "NEXTN" if profile.tokens_per_step > 1 else None,
        "speculative_num_draft_tokens": 4 if profile.tokens_per_step > 1 else None,
        "status": "Up",
        "frontend": "python",
        "version": VERSION,
        "max_total_num_tokens": facts.state.capacity_tokens,
        "max_req_input_len": served.max_len - 6,
        "internal_states": [{"last_gen_throughput": 0.0, "memory_usage": {"kvcache": 0.0}}],
        "kv_events": _kv_events(facts),
    }


def _kv_events(facts: Facts) -> Any:
    if facts.kv_port is None:
        return None
    return {
        "publisher": "zmq",
        "endpoint_host": "*",
        "endpoint_port_base": facts.kv_port,
        "topic": "",
        "block_size": facts.served.profile.block_tokens,
        "dp_size": 1,
        "replay_endpoint_port_base": facts.replay_port,
        "load_endpoint_port_base": None,
        "load_topic": None,
    }


def _loads(facts: Facts) -> Any:
    state, counts = facts.state, facts.counters
    usage = round(state.used_tokens / state.capacity_tokens, 4)
    rank = {
        "dp_rank": 0,
        "num_running_reqs": state.running,
        "num_waiting_reqs": state.waiting,
        "num_waiting_uncached_tokens": state.waiting_uncached_tokens,
        "num_used_tokens": state.used_tokens,
        "num_total_tokens": state.used_tokens,
        "num_active_tokens": state.context_tokens,
        "num_prealloc_ready_tokens": 0,
        "max_total_num_tokens": state.capacity_tokens,
        "max_running_requests": facts.served.profile.max_batch,
        "token_usage": usage,
        "gen_throughput": 0.0,
        "cache_hit_rate": round(counts.cached / counts.prompt_tokens, 4) if counts.prompt_tokens else 0.0,
        "utilization": 0.0,
        "total_prefill_uncached_tokens": counts.prompt_tokens - counts.cached,
        "total_prefill_busy_us": 0,
        "queues": {"waiting": state.waiting, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0},
    }
    return {
        "timestamp": facts.now_s,
        "version": VERSION,
        "accelerator": facts.served.profile.name,
        "num_accelerators": 1,
        "loads": [rank],
    }


def _metrics(facts: Facts) -> str:
    name = facts.served.options.model
    ranks = f'engine_type="unified",model_name="{name}",moe_ep_rank="0",pp_rank="0",tp_rank="0"'
    totals = f'engine_type="unified",model_name="{name}"'
    caches = 'cache_type="HiRadixCache",dp_rank="0",pp_rank="0",tp_rank="0"'
    return exposition(_gauges(facts), ranks) + exposition(_totals(facts), totals) + exposition(_copies(facts), caches)


def _gauges(facts: Facts) -> Iterator[Sample]:
    state, counts = facts.state, facts.counters
    yield "sglang:num_running_reqs", "gauge", "", state.running
    yield "sglang:num_queue_reqs", "gauge", "", state.waiting
    yield "sglang:token_usage", "gauge", "", state.used_tokens / state.capacity_tokens
    yield "sglang:num_used_tokens", "gauge", "", state.used_tokens
    yield "sglang:max_total_num_tokens", "gauge", "", state.capacity_tokens
    yield "sglang:page_size", "gauge", "", facts.served.profile.block_tokens
    yield "sglang:context_len", "gauge", "", facts.served.max_len
    yield "sglang:cache_hit_rate", "gauge", "", counts.cached / counts.prompt_tokens if counts.prompt_tokens else 0
    yield "sglang:gen_throughput", "gauge", "", 0
    per_step = facts.served.profile.tokens_per_step
    yield "sglang:spec_accept_length", "gauge", "", per_step if per_step > 1 and facts.state.steps else 0


def _totals(facts: Facts) -> Iterator[Sample]:
    counts = facts.counters
    yield "sglang:prompt_tokens_total", "counter", "", counts.prompt_tokens
    yield "sglang:generation_tokens_total", "counter", "", counts.generation_tokens
    yield "sglang:num_requests_total", "counter", "", counts.finished
    yield "sglang:num_aborted_requests_total", "counter", "", counts.finished_abort
    for source, value in (
        ("device", counts.cached_gpu),
        ("host", counts.cached_host),
        ("storage_HiCacheFile", counts.cached_fs),
    ):
        yield "sglang:cached_tokens_total", "counter", f'cache_source="{source}"', value
    for name, count, total in (
        ("time_to_first_token_seconds", counts.first_tokens, counts.ttft_s),
        ("inter_token_latency_seconds", counts.decode_tokens, counts.decode_s),
        ("e2e_request_latency_seconds", counts.finished, counts.e2e_s),
    ):
        yield f"sglang:{name}_bucket", "histogram", 'le="+Inf"', count
        yield f"sglang:{name}_count", "histogram", "", count
        yield f"sglang:{name}_sum", "histogram", "", total


def _copies(facts: Facts) -> Iterator[Sample]:
    """The hierarchical cache's transfers. Real storage on files does not tell its bandwidth; 3FS and Mooncake do."""
    profile, loaded, read = facts.served.profile, facts.loaded, facts.read
    if profile.host is None or not loaded.count:
        return
    yield "sglang:load_back_tokens_total", "counter", 'pool="kv"', loaded.tokens
    yield "sglang:load_back_bytes_total", "counter", "", loaded.tokens * profile.host.bytes_per_token
    yield "sglang:load_back_duration_seconds_bucket", "histogram", 'le="+Inf"', loaded.count
    yield "sglang:load_back_duration_seconds_count", "histogram", "", loaded.count
    yield "sglang:load_back_duration_seconds_sum", "histogram", "", loaded.seconds
    if profile.fs is not None and read.count:
        yield "sglang:prefetched_tokens_total", "counter", "", read.tokens
        if (each_s := profile.fs.bytes_per_token / profile.fs.bytes_per_s) > 0:
            rate = profile.host.bytes_per_token / each_s / (1 << 30)  # of one rank
            yield "sglang:prefetch_bandwidth_bucket", "histogram", 'le="+Inf"', read.count
            yield "sglang:prefetch_bandwidth_count", "histogram", "", read.count
            yield "sglang:prefetch_bandwidth_sum", "histogram", "", read.count * rate


def _metadata(facts: Facts) -> Any:
    model = facts.served.options.model
    return {
        "assetInfo": [],
        "licenseInfo": {},
        "modelInfo": [{"shortName": model, "modelUrl": f"/models/{model}"}],
        "profile_id": "51390000",
        "profile_name": f"sglang-{facts.served.profile.name}-bf16-tp1",
        "repository_override": "",
        "version": "2.0.0",
    }


def _nim_health(facts: Facts) -> Any:  # noqa: ARG001
    return {"object": "health.response", "message": "Service is ready.", "status": "ready"}


_SGLANG: Mapping[str, Callable[[Facts], Any]] = {
    "/health": _empty,
    "/health_generate": _empty,
    "/ready": _empty,
    "/ping": _empty,
    "/v1/models": _models,
    "/server_info": _server_info,
    "/get_server_info": _server_info,
    "/model_info": _model_info,
    "/get_model_info": _model_info,
    "/v1/loads": _loads,
    "/metrics": _metrics,
}
_NIM: Mapping[str, Callable[[Facts], Any]] = {
    "/v1/health/ready": _nim_health,
    "/v1/health/live": _nim_health,
    "/v1/models": _models,
    "/v1/metadata": _metadata,
    "/v1/metrics": _metrics,
}
SGLANG_PATHS = frozenset(_SGLANG)
NIM_PATHS = frozenset(_NIM)
