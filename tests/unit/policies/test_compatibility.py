import pytest

from backends.contract import PoolContract, Terms
from policies.compatibility import check_pair, check_pool, check_replicas, check_shared_root

SAME = {
    "model": "glm",
    "revision": "abc",
    "tokenizer": "t1",
    "precision": "fp8",
    "kv_dtype": "bf16",
    "block_size": 64,
    "kv_layout": "HND",
    "conv_layout": "DS",
    "spec_tokens": 5,
    "hash_algorithm": "sha256_cbor",
    "hash_seed": "0",
}
OTHER = {
    "model": "glm-2",
    "revision": "def",
    "tokenizer": "t2",
    "precision": "nvfp4",
    "kv_dtype": "fp8",
    "block_size": 16,
    "kv_layout": "NHD",
    "conv_layout": "SD",
    "spec_tokens": 3,
    "hash_algorithm": "sha256",
    "hash_seed": "7",
}


def contract(pool, engine="vllm", **changes):
    return PoolContract(pool, engine, Terms(**{**SAME, **changes}))


def test_equal_pools_fit():
    assert check_pair(contract("p"), contract("d")) == ()
    assert check_shared_root("/kv", [contract("a"), contract("b"), contract("c")]) == ()


@pytest.mark.parametrize("term", [term for term in OTHER if not term.startswith("hash_")])
def test_a_pair_that_differs_is_refused_with_both_values(term):
    [finding] = check_pair(contract("p"), contract("d", **{term: OTHER[term]}))
    assert (finding.severity, finding.term) == ("refuse", term)
    assert finding.message == (f"pools 'p' (prefill) and 'd' (decode) differ in {term}: {SAME[term]} and {OTHER[term]}")


@pytest.mark.parametrize("term", ["hash_seed", "hash_algorithm"])
def test_a_pair_hands_over_by_request_not_by_hash(term):
    assert check_pair(contract("p"), contract("d", **{term: OTHER[term]})) == ()


@pytest.mark.parametrize("term", list(OTHER))
def test_a_shared_root_that_differs_is_refused_with_both_values(term):
    [finding] = check_shared_root("/kv", [contract("a"), contract("b", **{term: OTHER[term]})])
    assert (finding.severity, finding.term) == ("refuse", term)
    assert f"over /kv differ in {term}: {SAME[term]} and {OTHER[term]}" in finding.message


def test_every_pair_over_a_root_is_compared():
    found = check_shared_root("/kv", [contract("a"), contract("b"), contract("c", hash_seed="7")])
    assert [finding.message.split(" over")[0] for finding in found] == ["pools 'a' and 'c'", "pools 'b' and 'c'"]


def test_unlike_engines_never_share():
    assert check_pair(contract("p"), contract("d", "sglang"))[0].severity == "refuse"
    assert check_shared_root("/kv", [contract("a"), contract("b", "sglang")])[0].term == "engine"


def test_unknown_on_one_side_warns_and_on_both_says_nothing():
    [finding] = check_pair(contract("p", kv_dtype=None), contract("d"))
    assert (finding.severity, finding.message[-20:]) == ("warn", "dtype: unknown and bf16"[-20:])
    assert check_pair(contract("p", kv_dtype=None), contract("d", kv_dtype=None)) == ()


def test_mixed_replicas_of_one_pool_warn():
    found = check_replicas([contract("a"), contract("a", revision="def"), contract("a", hash_seed="1", revision=None)])
    assert [(finding.severity, finding.term) for finding in found] == [("warn", "revision"), ("warn", "hash_seed")]
    assert "abc and def" in found[0].message
    assert "0 and 1" in found[1].message
    assert check_replicas([]) == ()


@pytest.mark.parametrize(
    ("gpu", "precision", "warned"), [("h100", "nvfp4", True), ("b300", "nvfp4", False), ("h100", "fp8", False)]
)
def test_nvfp4_on_hopper_warns(gpu, precision, warned):
    found = check_pool(contract("a", gpu=gpu, precision=precision))
    assert bool(found) is warned
    assert all(finding.severity == "warn" for finding in found)
