"""Probed contracts of real engines against the truth, written by hand from how they were started."""

import time
from typing import Any

import aiohttp
import pytest

from backends.contract import PoolContract, Source
from backends.engines import builtin
from backends.probing import AiohttpProbe, ProbeReport, Target, probe_pool
from tests.engine.servers import MODEL, VLLM, given, server

pytestmark = pytest.mark.engine

DIALECTS = frozenset({"chat", "completions", "responses", "messages"})
OPENAI = {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/v1/messages/count_tokens"}
COMMON = {
    "dialects": DIALECTS,
    "frontend": "python",
    "modalities": frozenset({"text"}),
    "efforts": (),
    "tool_modes": frozenset({"auto", "required", "named"}),
    "formats": frozenset({"json_object", "json_schema", "regex", "grammar"}),
    "max_context": 4096,
    "loras": frozenset(),
    "health_cost": "flag",
    "model": MODEL,
    "block_size": 32,
    "spec_method": "",
    "spec_tokens": 0,
}
PLAIN = {"reasoning": False, "stop_scope": "answer"}
THINKING = {"reasoning": True, "reasoning_off": True, "stop_scope": "everything"}
VLLM_ALWAYS = {
    "reasoning_field": "reasoning",
    "abort_path": "",
    "version": "0.32.0",
    "precision": "bf16",
    "hash_algorithm": "sha256_cbor",
    "storage": True,  # VLLM_ENABLE_RESPONSES_API_STORE=1
}
VLLM_TRUTH = {
    **COMMON,
    **PLAIN,
    **VLLM_ALWAYS,
    "endpoints": frozenset(
        OPENAI
        | {"/tokenize", "/detokenize", "/inference/v1/generate", "/generative_scoring"}
        | {"/v1/chat/completions/render", "/v1/completions/render"},
    ),
    "logprobs": 20,
    "cached_tokens": True,
    "cached_tokens_flag": "",
    "priority": False,
}
SGLANG_TRUTH = {
    **COMMON,
    **PLAIN,
    "endpoints": frozenset(OPENAI | {"/tokenize", "/detokenize", "/v1/tokenize", "/v1/detokenize"}),
    "reasoning_field": "reasoning_content",
    "abort_path": "/abort_request",
    "version": "0.5.23",
    "tool_parser": "qwen",
    "logprobs": 20,
    "storage": False,
    "cached_tokens": True,
    "cached_tokens_flag": "",
    "priority": False,
}
# Started to reason, and without the flags that tell cached tokens and open the scale-out endpoints.
BARE = ["--no-enable-prompt-tokens-details", "--no-enable-scale-out", "--max-logprobs", "5"]
BARE += ["--scheduling-policy", "priority"]
BARE_TRUTH = {
    **COMMON,
    **THINKING,
    **VLLM_ALWAYS,
    "endpoints": frozenset(OPENAI | {"/tokenize", "/detokenize", "/generative_scoring"}),
    "logprobs": 5,
    "cached_tokens": False,
    "cached_tokens_flag": "--enable-prompt-tokens-details",
    "priority": True,
}


class SystemTime:
    def time(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()


async def probe(engine: str, url: str, **declared: Any) -> ProbeReport:
    target = Target(engine, builtin()[engine], MODEL, declared)
    async with aiohttp.ClientSession() as session:
        return await probe_pool(target, AiohttpProbe(session, url), clock=SystemTime())


def known(contract: PoolContract) -> dict[str, Any]:
    return {term: fact.value for term, fact in contract.facts.items() if term != "tokenizer"}


@pytest.mark.timeout(300)
async def test_vllm(vllm_url: str) -> None:
    report = await probe("vllm", vllm_url)
    assert known(report.contract) == VLLM_TRUTH
    assert report.complete
    assert report.tokens < 4000


@pytest.mark.timeout(300)
async def test_sglang(sglang_url: str) -> None:
    report = await probe("sglang", sglang_url)
    assert known(report.contract) == SGLANG_TRUTH
    assert report.complete
    assert report.tokens < 4000


@pytest.mark.timeout(300)
async def test_both_have_the_same_tokenizer(vllm_url: str, sglang_url: str) -> None:
    vllm, sglang = await probe("vllm", vllm_url), await probe("sglang", sglang_url)
    assert vllm.contract.terms.tokenizer == sglang.contract.terms.tokenizer is not None


@pytest.mark.timeout(300)
async def test_a_wrong_declaration_is_an_incident(sglang_url: str) -> None:
    report = await probe("sglang", sglang_url, storage=True, max_context=131_072, stop_scope="answer")
    assert {entry.term: (entry.declared, entry.probed) for entry in report.incidents} == {
        "storage": (True, False),
        "max_context": (131_072, 4096),
    }
    assert report.contract.source("max_context") is Source.PROBED


@pytest.mark.timeout(600)
async def test_vllm_that_reasons_with_flags_missing(tmp_path) -> None:
    if given(VLLM) is None:
        pytest.skip(f"{VLLM.variable} is not set: the engine may not be installed")
    with server(VLLM, tmp_path, ["--reasoning", "--", *BARE]) as bare:
        report = await probe("vllm", bare.url)
    assert known(report.contract) == BARE_TRUTH
