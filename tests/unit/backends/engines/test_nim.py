from backends.engines.nim import Nim
from backends.engines.sglang import Sglang


def test_nim_speaks_sglang_on_fewer_paths():
    nim, sglang = Nim(), Sglang()
    assert nim.spec.paths < sglang.spec.paths
    assert nim.spec.reasoning_field == sglang.spec.reasoning_field
    assert nim.spec.ready_path == "/v1/health/ready"


def test_nim_has_none_of_vllms_own_endpoints():
    assert not [path for path in Nim.spec.paths if "render" in path or "generat" in path]


def test_load_is_read_from_prometheus_text():
    body = b'sglang:num_running_reqs{tp_rank="0"} 5.0\nsglang:token_usage{tp_rank="0"} 0.5\n'
    load = Nim().parse_load(body, 1.0)
    assert (load.running, load.kv_used) == (5, 0.5)


def test_precision_from_the_chosen_profile():
    body = b'{"profile_name": "sglang-gb200-nvfp4-tp4-pp1-throughput"}'
    assert Nim().facts("/v1/metadata", {}, body) == {"precision": "nvfp4"}
    assert Nim().facts("/v1/metadata", {}, b'{"profile_name": "custom"}') == {}
    assert Nim().facts("/v1/metadata", {}, b"[]") == {}
