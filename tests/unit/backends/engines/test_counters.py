"""Counters out of the text that engines expose: lines as vLLM 0.32 and SGLang 0.5.23 write them."""

import pytest

from backends.counters import Copies, Counters
from backends.engines.nim import Nim
from backends.engines.sglang import Sglang
from backends.engines.vllm import Vllm

VLLM = b"""\
# HELP vllm:kv_offload_total_bytes_total Number of bytes offloaded by KV connector
# TYPE vllm:kv_offload_total_bytes_total counter
vllm:kv_offload_total_bytes_total{engine="0",model_name="m",transfer_type="CPU_to_GPU"} 8.404992e+07
# HELP vllm:kv_offload_tiering_read_bytes_total Total bytes read from secondary tiers, labeled by tier.
# TYPE vllm:kv_offload_tiering_read_bytes_total counter
vllm:kv_offload_tiering_read_bytes_total{engine="0",model_name="m",tier="1:fs"} 6.4e+07
vllm:kv_offload_tiering_read_bytes_total{engine="0",model_name="m",tier="2:obj"} 9e+09
vllm:kv_offload_tiering_read_bytes_created{engine="0",model_name="m",tier="1:fs"} 1.7960975568418634e+09
vllm:kv_offload_tiering_read_time_total{engine="0",model_name="m",tier="1:fs"} 0.04
vllm:kv_offload_tiering_read_time_total{engine="0",model_name="m",tier="2:obj"} 70.0
vllm:kv_offload_tiering_write_time_total{engine="0",model_name="m",tier="1:fs"} 2.4116234939999686
# TYPE vllm:kv_offload_load_bytes_total counter
vllm:kv_offload_load_bytes_total{engine="0",model_name="m"} 8.404992e+07
vllm:kv_offload_load_bytes_total{engine="1",model_name="m"} 0.4e+07
vllm:kv_offload_load_time_total{engine="0",model_name="m"} 0.03329925999992156
vllm:kv_offload_load_size_bucket{engine="0",le="+Inf",model_name="m"} 3.0
vllm:kv_offload_load_size_count{engine="0",model_name="m"} 3.0
vllm:kv_offload_load_size_count{engine="1",model_name="m"} 1.0
vllm:kv_offload_load_size_sum{engine="0",model_name="m"} 8.404992e+07
vllm:generation_tokens_total{engine="0",model_name="m"} 44.0
vllm:spec_decode_num_drafts_total{engine="0",model_name="m"} 100.0
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="m"} 300.0
vllm:spec_decode_num_accepted_tokens_total{engine="0",model_name="m"} 140.0
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",model_name="m",position="0"} 80.0
"""
RANK = 'cache_type="UnifiedRadixCache",dp_rank="0",pp_rank="0"'
STORE = 'dp_rank="0",pp_rank="0",storage_backend="hf3fs"'
SGLANG = f"""\
# TYPE sglang:spec_accept_length gauge
sglang:spec_accept_length{{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"}} 2.75
sglang:spec_accept_rate{{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"}} 0.58
# TYPE sglang:generation_tokens_total counter
sglang:generation_tokens_total{{engine_type="unified",model_name="m"}} 900.0
sglang:load_back_duration_seconds_bucket{{{RANK},le="+Inf",tp_rank="0"}} 4.0
sglang:load_back_duration_seconds_count{{{RANK},tp_rank="0"}} 4.0
sglang:load_back_duration_seconds_count{{{RANK},tp_rank="1"}} 4.0
sglang:load_back_duration_seconds_sum{{{RANK},tp_rank="0"}} 0.25
sglang:load_back_duration_seconds_sum{{{RANK},tp_rank="1"}} 0.26
sglang:load_back_tokens_total{{{RANK},pool="kv",tp_rank="0"}} 50000.0
sglang:load_back_tokens_total{{{RANK},pool="mamba",tp_rank="0"}} 8.0
sglang:load_back_tokens_total{{{RANK},pool="kv",tp_rank="1"}} 50000.0
sglang:load_back_bytes_total{{{RANK},tp_rank="0"}} 7.3728e+09
sglang:prefetched_tokens_total{{{STORE},tp_rank="0"}} 16384.0
sglang:prefetch_bandwidth_bucket{{{STORE},le="1.0",tp_rank="0"}} 1.0
sglang:prefetch_bandwidth_count{{{STORE},tp_rank="0"}} 2.0
sglang:prefetch_bandwidth_sum{{{STORE},tp_rank="0"}} 1.5
""".encode()


def test_vllm_sums_its_engines():
    assert Vllm().parse_counters(VLLM) == Counters(
        generated=44.0,
        drafts=100.0,
        accepted=140.0,
        host=Copies(count=4.0, bytes=88049920.0, seconds=0.03329925999992156),
        fs=Copies(bytes=6.4e7, seconds=0.04),
    )


@pytest.mark.parametrize("kind", [Sglang(), Nim()])
def test_sglang_counts_one_rank_and_the_pool_of_kv(kind):
    assert kind.parse_counters(SGLANG) == Counters(
        generated=900.0,
        per_step=2.75,
        host=Copies(count=4.0, tokens=50000.0, seconds=0.25),
        fs=Copies(count=2.0, tokens=16384.0, rates=1.5 * 2**30),
    )


def test_sglang_takes_the_mean_of_dp_ranks_that_speculate():
    lines = [
        f'sglang:spec_accept_length{{dp_rank="{rank}",tp_rank="0"}} {value}' for rank, value in enumerate((0, 2, 3))
    ]
    assert Sglang().parse_counters("\n".join(lines).encode()).per_step == 2.5


@pytest.mark.parametrize("kind", [Vllm(), Sglang()])
@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"vllm:", b"\n\n", b'{"loads": []}'])
def test_nothing_to_read_is_nothing_counted(kind, body):
    assert kind.parse_counters(body) == Counters()


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-3.0", "many", ""])
def test_nonsense_is_nothing_counted(value):
    assert Vllm().parse_counters(f"vllm:kv_offload_load_time_total{{}} {value}\n".encode()) == Counters()
    assert Sglang().parse_counters(f"sglang:load_back_tokens_total {value}\n".encode()) == Counters()


@pytest.mark.parametrize("kind", [Vllm(), Sglang(), Nim()])
def test_every_kind_says_where_its_counters_are(kind):
    assert kind.spec.counters_path.endswith("/metrics")
