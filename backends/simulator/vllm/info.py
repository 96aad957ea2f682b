"""What a vLLM server says of itself on its GET endpoints."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from backends.simulator.metrics import Sample, exposition
from backends.simulator.vllm.bodies import VERSION
from backends.simulator.wire import Facts


def info(path: str, facts: Facts) -> tuple[int, Any]:
    """Status and body of one of `GET_PATHS`."""
    return 200, _ANSWERS[path](facts)


def _empty(facts: Facts) -> None:  # noqa: ARG001 - health bodies are empty
    return None


def _models(facts: Facts) -> Any:
    options, created = facts.served.options, facts.served.started
    permission = {
        "id": "modelperm-892d774ae36918bc",
        "object": "model_permission",
        "created": created,
        "allow_create_engine": False,
        "allow_sampling": True,
        "allow_logprobs": True,
        "allow_search_indices": False,
        "allow_view": True,
        "allow_fine_tuning": False,
        "organization": "*",
        "group": None,
        "is_blocking": False,
    }
    cards = [
        {
            "id": name,
            "object": "model",
            "created": created,
            "owned_by": "vllm",
            "root": f"/models/{options.model}",
            "parent": None,
            "max_model_len": facts.served.max_len,
            "permission": [permission],
        }
        for name in (options.model, *options.aliases)
    ]
    return {"object": "list", "data": cards}


def _version(facts: Facts) -> Any:  # noqa: ARG001
    return {"version": VERSION}


def _load(facts: Facts) -> Any:
    return {"server_load": facts.in_flight}


def _sources(facts: Facts) -> Any:
    if facts.kv_port is None:
        return {}
    return {
        "0": {
            "enable_kv_cache_events": True,
            "publisher": "zmq",
            "endpoint": f"tcp://*:{facts.kv_port}",
            "replay_endpoint": f"tcp://127.0.0.1:{facts.replay_port}",
            "buffer_steps": 10000,
            "hwm": 100000,
            "max_queue_size": 100000,
            "topic": f"kv@{facts.served.options.host}@{facts.served.options.model}",
        }
    }


def _server_info(facts: Facts) -> Any:
    options = facts.served.options
    return {
        "vllm_config": {
            "model_config": {
                "model": f"/models/{options.model}",
                "served_model_name": options.model,
                "max_model_len": facts.served.max_len,
                "dtype": "torch.bfloat16",
                "quantization": None,
                "revision": None,
                "max_logprobs": 20,
                "seed": options.seed,
            },
            "cache_config": {"block_size": facts.served.profile.block_tokens},
            "scheduler_config": {"policy": "fcfs", "max_num_seqs": facts.served.profile.max_batch},
        }
    }


def _metrics(facts: Facts) -> str:
    return exposition(_samples(facts), f'engine="0",model_name="{facts.served.options.model}"')


def _samples(facts: Facts) -> Iterator[Sample]:
    state, counts = facts.state, facts.counters
    used = state.used_tokens / state.capacity_tokens
    yield "vllm:num_requests_running", "gauge", "", state.running
    yield "vllm:num_requests_waiting", "gauge", "", state.waiting
    yield "vllm:num_requests_waiting_by_reason", "gauge", 'reason="capacity"', state.waiting
    yield "vllm:num_requests_waiting_by_reason", "gauge", 'reason="deferred"', 0
    yield "vllm:engine_sleep_state", "gauge", 'sleep_state="awake"', 1
    yield "vllm:kv_cache_usage_perc", "gauge", "", used
    yield "vllm:prefix_cache_queries_total", "counter", "", counts.prompt_tokens
    yield "vllm:prefix_cache_hits_total", "counter", "", counts.cached_gpu
    external = counts.cached_host + counts.cached_fs
    yield "vllm:external_prefix_cache_queries_total", "counter", "", counts.prompt_tokens - counts.cached_gpu
    yield "vllm:external_prefix_cache_hits_total", "counter", "", external
    yield "vllm:prompt_tokens_total", "counter", "", counts.prompt_tokens
    yield "vllm:generation_tokens_total", "counter", "", counts.generation_tokens
    by_source = {
        "local_compute": counts.prompt_tokens - counts.cached,
        "local_cache_hit": counts.cached_gpu,
        "external_kv_transfer": external,
    }
    for source, value in by_source.items():
        yield "vllm:prompt_tokens_by_source_total", "counter", f'source="{source}"', value
    for source, value in (
        ("device", counts.cached_gpu),
        ("host", counts.cached_host),
        ("p2p", 0),
        ("disk", counts.cached_fs),
        ("external_unspecified", 0),
    ):
        yield "vllm:prompt_tokens_cached_by_source_total", "counter", f'source="{source}"', value
    for reason, value in (("stop", counts.finished_stop), ("length", counts.finished_length), ("abort", 0)):
        yield "vllm:request_success_total", "counter", f'finished_reason="{reason}"', value
    yield "vllm:admission_rejections_total", "counter", 'reason="max_num_queued_reqs"', counts.rejected
    yield "vllm:num_preemptions_total", "counter", "", 0
    yield from _drafts(facts)
    yield from _copies(facts)
    yield from _histograms(facts)
    size = facts.served.profile.block_tokens
    labels = (
        f'block_size="{size}",cache_dtype="auto",enable_prefix_caching="True",kv_cache_layout="None",'
        f'kv_cache_size_tokens="{state.capacity_tokens}",num_gpu_blocks="{state.capacity_tokens // size}",'
        'prefix_caching_hash_algo="sha256_cbor"'
    )
    yield "vllm:cache_config_info", "gauge", labels, 1


def _drafts(facts: Facts) -> Iterator[Sample]:
    """Speculative decoding, where there is any. The token that every step gives is no draft token."""
    steps, kept = facts.state.steps, facts.served.profile.tokens_per_step - 1.0
    if kept <= 0.0:
        return
    yield "vllm:spec_decode_num_drafts_total", "counter", "", steps
    yield "vllm:spec_decode_num_draft_tokens_total", "counter", "", steps * math.ceil(kept)
    yield "vllm:spec_decode_num_accepted_tokens_total", "counter", "", round(steps * kept)


def _copies(facts: Facts) -> Iterator[Sample]:
    """The offloading connector's transfers, of one rank; a lower tier's show once there are any."""
    profile, loaded, read = facts.served.profile, facts.loaded, facts.read
    if profile.host is None:
        return
    moved = loaded.tokens * profile.host.bytes_per_token
    yield "vllm:kv_offload_load_bytes_total", "counter", "", moved
    yield "vllm:kv_offload_load_time_total", "counter", "", loaded.seconds
    yield "vllm:kv_offload_load_size_bucket", "histogram", 'le="+Inf"', loaded.count
    yield "vllm:kv_offload_load_size_count", "histogram", "", loaded.count
    yield "vllm:kv_offload_load_size_sum", "histogram", "", moved
    if profile.fs is not None and read.count:
        moved = read.tokens * profile.fs.bytes_per_token
        yield "vllm:kv_offload_tiering_read_bytes_total", "counter", 'tier="1:fs"', moved
        yield "vllm:kv_offload_tiering_read_time_total", "counter", 'tier="1:fs"', read.seconds


def _histograms(facts: Facts) -> Iterator[Sample]:
    counts = facts.counters
    for name, count, total in (
        ("time_to_first_token_seconds", counts.first_tokens, counts.ttft_s),
        ("inter_token_latency_seconds", counts.decode_tokens, counts.decode_s),
        ("e2e_request_latency_seconds", counts.finished, counts.e2e_s),
    ):
        yield f"vllm:{name}_bucket", "histogram", 'le="+Inf"', count
        yield f"vllm:{name}_count", "histogram", "", count
        yield f"vllm:{name}_sum", "histogram", "", total


_ANSWERS: Mapping[str, Callable[[Facts], Any]] = {
    "/health": _empty,
    "/ping": _empty,
    "/v1/models": _models,
    "/version": _version,
    "/load": _load,
    "/kv_event_sources": _sources,
    "/server_info": _server_info,
    "/metrics": _metrics,
    "/is_sleeping": lambda facts: {"is_sleeping": False},  # noqa: ARG005
    "/is_paused": lambda facts: {"is_paused": False},  # noqa: ARG005
}
GET_PATHS = frozenset(_ANSWERS)
