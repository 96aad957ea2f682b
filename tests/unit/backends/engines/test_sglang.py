import json

import pytest

from backends.contracts import Fault, Load
from backends.engines.sglang import Sglang

RANK = (
    '{"dp_rank": 0, "num_running_reqs": 4, "num_waiting_reqs": 1, "num_waiting_uncached_tokens": 8, '
    '"num_used_tokens": 576, "max_total_num_tokens": 8192, "max_running_requests": 8, "token_usage": 0.0703, '
    '"queues": {"waiting": 1, "grammar": 0, "paused": 0, "retracted": 0, "prealloc_ready": 0}}'
)


def test_load_of_one_rank():
    body = f'{{"timestamp": 1796096922.2, "version": "0.5.23", "loads": [{RANK}]}}'.encode()
    want = Load(running=4, waiting=1, waiting_uncached_tokens=8, kv_used=0.0703, kv_capacity_tokens=8192, at_s=3.0)
    assert Sglang().parse_load(body, 3.0) == want


def test_load_sums_the_ranks():
    other = json.dumps({**json.loads(RANK), "dp_rank": 1, "token_usage": 0.5})
    load = Sglang().parse_load(f'{{"loads": [{RANK}, {other}]}}'.encode(), 3.0)
    assert (load.running, load.waiting_uncached_tokens, load.kv_capacity_tokens) == (8, 16, 16384)
    assert load.kv_used == pytest.approx(0.28515)


def test_load_from_metrics_counts_each_dp_rank_once():
    labels = 'engine_type="unified",model_name="tiny",moe_ep_rank="0",pp_rank="0"'
    lines = [
        f'{name}{{{labels},tp_rank="{rank}"}} {value}'
        for rank in (0, 1)
        for name, value in [
            ("sglang:num_running_reqs", 3),
            ("sglang:num_queue_reqs", 2),
            ("sglang:token_usage", 0.5),
            ("sglang:max_total_num_tokens", 8192),
        ]
    ]
    want = Load(running=3, waiting=2, kv_used=0.5, kv_capacity_tokens=8192, at_s=1.0)
    assert Sglang().parse_load("\n".join(lines).encode(), 1.0) == want


@pytest.mark.parametrize(
    "body", [b"", b"{", b"{}", b'{"loads":[]}', b'{"loads":[3]}', b'{"loads":[{}]}', b"\xff", b"[]", b'{"a":' * 9999]
)
def test_unreadable_load_is_zero(body):
    assert Sglang().parse_load(body, 1.0) == Load(at_s=1.0)


FRAMES = [
    (
        (
            b'{"error": {"object": "error", "message": "The request queue is full.", "type": "SERVICE_UNAVAILABLE", '
            b'"param": null, "code": 503}}'
        ),
        (Fault.OVERLOADED, 503, "server_overloaded"),
    ),
    (
        (
            b'{"type":"error","error":{"type":"invalid_request_error","message":"The input (6015 tokens) is longer '
            b"than the model's context length (4096 tokens).\"}}"
        ),
        (Fault.CLIENT, 400, "context_length_exceeded"),
    ),
    (
        (
            b'{"type":"response.failed","response":{"id":"resp_1","status":"failed","error":{"code":"server_error","message":'
            b'"The input (6015 tokens) is longer than the model\'s context length (4096 tokens)."}}}'
        ),
        (Fault.CLIENT, 400, "context_length_exceeded"),
    ),
    (
        (
            b'{"text":"","output_ids":[],"meta_info":{"id":"f","finish_reason":{"type":"abort","status_code":503,'
            b'"message":"The request queue is full."}}}'
        ),
        (Fault.OVERLOADED, 503, "server_overloaded"),
    ),
    (
        (
            b'{"id":"queued-1","choices":[{"index":0,"delta":{"reasoning_content":null},"logprobs":null,'
            b'"finish_reason":"abort","matched_stop":null}]}'
        ),
        (Fault.TRUNCATED, 200, None),
    ),
]


@pytest.mark.parametrize(("frame", "want"), FRAMES)
def test_failures_that_come_with_status_200(frame, want):
    failure = Sglang().frame_failure(frame)
    assert failure is not None
    assert (failure.fault, failure.status, failure.code) == want


@pytest.mark.parametrize(
    "frame",
    [
        b'{"id":"x","choices":[{"index":0,"delta":{"content":"\\"finish_reason\\":\\"abort\\""},"finish_reason":null}]}',
        b'{"type":"response.in_progress","response":{"error":null}}',
        b'{"text":"a","meta_info":{"finish_reason":{"type":"length","length":3}}}',
        b'{"text":"a","meta_info":{"finish_reason":null}}',
        b"[DONE]",
    ],
)
def test_ordinary_frames_are_no_failures(frame):
    assert Sglang().frame_failure(frame) is None


def test_facts_from_server_info():
    flags = {
        "page_size": 64,
        "version": "0.5.23",
        "frontend": "python",
        "quantization": "modelopt_fp4",
        "kv_cache_dtype": "fp8_e4m3",
        "enable_hierarchical_cache": True,
        "hicache_mem_layout": "page_first",
        "speculative_algorithm": "NEXTN",
        "speculative_num_draft_tokens": 4,
        "enable_priority_scheduling": True,
        "tool_call_parser": None,
    }
    assert Sglang().facts("/server_info", {}, json.dumps(flags).encode()) == {
        "block_size": 64,
        "version": "0.5.23",
        "frontend": "python",
        "precision": "nvfp4",
        "kv_dtype": "fp8",
        "kv_layout": "page_first",
        "spec_method": "nextn",
        "spec_tokens": 4,
        "priority": True,
        "tool_parser": "",
    }


def test_facts_from_model_info():
    body = b'{"weight_version": "2026-11", "tool_call_parser": "glm47"}'
    assert Sglang().facts("/model_info", {}, body) == {"revision": "2026-11", "tool_parser": "glm47"}
    assert Sglang().facts("/model_info", {}, b'{"weight_version": "default"}') == {}


@pytest.mark.parametrize("path", ["/server_info", "/model_info", "/version"])
@pytest.mark.parametrize("body", [b"", b"[]", b"{}", b"\xff"])
def test_unreadable_facts_are_left_out(path, body):
    assert Sglang().facts(path, {}, body) == {}


def test_constraints():
    assert Sglang().constrained("regex", "a|b") == {"regex": "a|b"}
    assert Sglang().constrained("grammar", "root ::= 'a'") == {"ebnf": "root ::= 'a'"}
