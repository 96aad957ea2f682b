"""Prefill/decode pairs that cannot work are refused, naming why."""

from __future__ import annotations

import pytest

from .conftest import File

PAIR = """
auth: {mode: open}
pools:
  - {name: p, engine: vllm, model: glm, replicas: ["http://127.0.0.1:9101"]}
  - {name: d, engine: vllm, model: glm, replicas: ["http://127.0.0.1:9102"], prefill: {pool: p}}
models:
  - {name: glm, pools: [d]}
"""
AT = "pools[1].prefill.pool"


def test_a_pair_loads_without_a_warning(file: File) -> None:
    loaded = file.load(PAIR)
    assert loaded.warnings == ()
    prefill = loaded.config.pools[1].prefill
    assert prefill is not None
    assert (prefill.pool, prefill.bootstrap_port) == ("p", 8998)


@pytest.mark.parametrize(
    ("old", "new", "path", "message"),
    [
        ("{pool: p}", "{pool: q}", AT, "there is no pool 'q' (known: d, p)"),
        ("{pool: p}", "{pool: d}", AT, "is the pool itself (name the pool that computes its prompts)"),
        ("pools: [d]", "pools: [d, p]", "models[0].pools[1]",
         "pool 'p' prefills for another pool (list the decode pool alone)"),
        ("p, engine: vllm", "p, engine: sglang", AT,
         "pools 'p' (prefill) and 'd' (decode) differ in engine: sglang and vllm"),
        ("engine: vllm", "engine: nim", AT, "engine 'nim' cannot be split in prefill and decode"),
        ("d, engine: vllm", "d, kv_dtype: fp8, engine: vllm", None, None),
        ("engine: vllm", "engine: vllm, revision: r1", None, None),
        ('9101"]', '9101"], prefill: {pool: d}', AT, "pool 'p' decodes for pool 'd'; it cannot prefill too"),
    ],
)  # fmt: skip
def test_unfit_partners(file: File, old: str, new: str, path: str | None, message: str | None) -> None:
    text = PAIR.replace(old, new) if "nim" in new or "revision" in new else PAIR.replace(old, new, 1)
    if path is None:
        assert file.load(text).config.pools[1].prefill is not None  # unknown on one side, or equal
    else:
        assert file.problems(text)[path] == message


@pytest.mark.parametrize(
    ("prefill", "decode", "term"),
    [
        ("kv_dtype: bf16", "kv_dtype: fp8", "kv_dtype: bf16 and fp8"),
        ("revision: a", "revision: b", "revision: a and b"),
        ("contract: {block_size: 16}", "contract: {block_size: 64}", "block_size: 16 and 64"),
        ("contract: {spec_tokens: 0}", "contract: {spec_tokens: 3}", "spec_tokens: 0 and 3"),
    ],
)
def test_both_values_that_differ_are_named(file: File, prefill: str, decode: str, term: str) -> None:
    text = PAIR.replace("{name: p,", f"{{name: p, {prefill},").replace("{name: d,", f"{{name: d, {decode},")
    assert file.problems(text) == {AT: f"pools 'p' (prefill) and 'd' (decode) differ in {term}"}
