import gzip
from pathlib import Path

import pytest

from backends.contracts import Fault, Load
from backends.engines.vllm import Vllm

METRICS = gzip.decompress((Path(__file__).parents[3] / "data/captures/vllm/metrics.txt.gz").read_bytes())


def test_load_from_a_real_metrics_page():
    assert Vllm().parse_load(METRICS, 12.5) == Load(kv_capacity_tokens=4480, at_s=12.5)


def test_load_sums_the_ranks():
    body = b"\n".join(
        [
            b'vllm:num_requests_running{engine="0",model_name="m"} 3.0',
            b'vllm:num_requests_running{engine="1",model_name="m"} 4.0',
            b'vllm:num_requests_waiting{engine="0",model_name="m"} 1.0',
            b'vllm:num_requests_waiting{engine="1",model_name="m"} 2.0',
            b'vllm:num_requests_waiting_by_reason{engine="0",model_name="m",reason="capacity"} 9.0',
            b'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.25',
            b'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.75',
            b'vllm:cache_config_info{block_size="32",engine="0",kv_cache_size_tokens="None",num_gpu_blocks="10"} 1.0',
            b'vllm:cache_config_info{block_size="32",engine="1",kv_cache_size_tokens="640",num_gpu_blocks="10"} 1.0',
        ],
    )
    assert Vllm().parse_load(body, 1.0) == Load(running=7, waiting=3, kv_used=0.5, kv_capacity_tokens=960, at_s=1.0)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>",
        b"\xff",
        b"vllm:num_requests_running{} NaN",
        b"vllm:num_requests_running +Inf",
        b"vllm:num_requests_running x",
    ],
)
def test_unreadable_load_is_zero(body):
    assert Vllm().parse_load(body, 1.0) == Load(at_s=1.0)


def test_error_in_a_stream():
    frame = (
        b'{"error": {"message": "Internal server error", "type": "InternalServerError", "param": null, "code": 500}}'
    )
    failure = Vllm().frame_failure(frame)
    assert failure is not None
    assert (failure.fault, failure.status, failure.message) == (Fault.ENGINE, 500, "Internal server error")


@pytest.mark.parametrize(
    "frame",
    [
        b'{"id":"c","choices":[{"index":0,"delta":{"content":"an \\"error\\": {}"},"finish_reason":null}]}',
        b'{"id":"c","choices":[{"index":0,"delta":{"tool_calls":[{"function":{"arguments":"{\\"error\\":1}"}}]}}]}',
        b'{"type":"response.created","response":{"id":"r","error":null},"sequence_number":0}',
        b"[DONE]",
        b"",
        b'{"error":null}',
    ],
)
def test_ordinary_frames_are_no_failures(frame):
    assert Vllm().frame_failure(frame) is None


def test_failed_response_event():
    frame = b'{"type":"response.failed","response":{"status":"failed","error":{"code":"server_error","message":"no"}}}'
    failure = Vllm().frame_failure(frame)
    assert failure is not None
    assert (failure.fault, failure.status, failure.code) == (Fault.ENGINE, 500, "server_error")


def test_facts_from_a_real_metrics_page():
    assert Vllm().facts("/metrics", {}, METRICS) == {"block_size": 32, "hash_algorithm": "sha256_cbor"}


def test_facts_from_a_real_server_info():
    body = gzip.decompress((Path(__file__).parents[3] / "data/captures/vllm/server_info.json.gz").read_bytes())
    assert Vllm().facts("/server_info?config_format=json", {}, body) == {
        "precision": "bf16",
        "logprobs": 20,
        "priority": False,
        "spec_method": "",
        "spec_tokens": 0,
    }


def test_facts_of_a_draft_model_and_quantised_weights():
    body = b"""{"vllm_config": {"model_config": {"quantization": "fp8", "revision": "abc"},
        "scheduler_config": {"policy": "priority"},
        "speculative_config": {"method": "mtp", "num_speculative_tokens": 5}}}"""
    assert Vllm().facts("/server_info?config_format=json", {}, body) == {
        "precision": "fp8",
        "revision": "abc",
        "priority": True,
        "spec_method": "mtp",
        "spec_tokens": 5,
    }


def test_a_quantisation_that_names_no_format_is_not_guessed():
    body = b'{"vllm_config": {"model_config": {"quantization": "compressed-tensors", "dtype": "torch.bfloat16"}}}'
    assert "precision" not in Vllm().facts("/server_info?config_format=json", {}, body)


@pytest.mark.parametrize(
    ("headers", "frontend"), [({"server": "uvicorn"}, "python"), ({}, "rust"), ({"server": "x"}, "rust")]
)
def test_the_frontend_is_who_answers(headers, frontend):
    assert Vllm().facts("/version", headers, b"{}") == {"frontend": frontend}


def test_constraints():
    assert Vllm().constrained("regex", "a|b") == {"structured_outputs": {"regex": "a|b"}}
