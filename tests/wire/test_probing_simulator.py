"""Probed contracts of simulated engines against the truth, written by hand from their options, field by field."""

import time

import aiohttp
import pytest

from backends.engines import builtin
from backends.probing import AiohttpProbe, Target, probe_pool
from backends.simulator.options import SimOptions
from backends.simulator.server import start

COMMON = {
    "dialects": frozenset({"chat", "completions"}),
    "tool_modes": frozenset({"auto", "required", "named"}),
    "formats": frozenset({"json_object", "json_schema"}),
    "storage": False,
    "loras": frozenset(),
    "health_cost": "flag",
    "model": "glm",
}
TEXT = frozenset({"text"})
CHAT = {"/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize"}
VLLM = {
    "endpoints": frozenset(CHAT),
    "frontend": "python",
    "reasoning_field": "reasoning",
    "abort_path": "",
    "version": "0.32.0",
    "precision": "bf16",
    "block_size": 16,
    "hash_algorithm": "sha256_cbor",
    "priority": False,
    "spec_method": "",
    "spec_tokens": 0,
}
SGLANG = {
    "endpoints": frozenset(CHAT | {"/v1/tokenize", "/v1/detokenize", "/v1/embeddings", "/v1/rerank"}),
    "frontend": "python",
    "reasoning_field": "reasoning_content",
    "abort_path": "/abort_request",
    "version": "0.5.23",
    "block_size": 64,
    "priority": True,
    "spec_method": "",
    "spec_tokens": 0,
    "tool_parser": "glm47",
}
NIM = {
    "endpoints": frozenset(CHAT),
    "reasoning_field": "reasoning_content",
    "abort_path": "",
    "precision": "bf16",
}
GLM = {
    "reasoning": True,
    "reasoning_off": False,
    "efforts": ("low", "high", "max"),
    "default_effort": "max",
    "stop_scope": "everything",
}
CASES = [
    (
        SimOptions("vllm", model="glm", report_cached=True, max_model_len=4096),
        {
            **VLLM,
            "modalities": TEXT,
            "reasoning": False,
            "efforts": (),
            "stop_scope": "answer",
            "logprobs": 20,
            "max_context": 4096,
            "cached_tokens": True,
            "cached_tokens_flag": "",
        },
    ),
    (
        SimOptions("vllm", model="glm", reasoning="glm", report_cached=False),
        {
            **VLLM,
            **GLM,
            "modalities": TEXT,
            "logprobs": 20,  # said by /server_info: a token of reasoning has none to show
            "max_context": 131_072,
            "cached_tokens": False,
            "cached_tokens_flag": "--enable-prompt-tokens-details",
        },
    ),
    (
        SimOptions("sglang", model="glm", reasoning="qwen", embeddings=True, report_cached=False),
        {
            **SGLANG,
            "modalities": TEXT,
            "reasoning": True,
            "reasoning_off": True,
            "efforts": (),
            "stop_scope": "everything",
            "logprobs": 20,
            "max_context": 131_072,
            "cached_tokens": False,
            "cached_tokens_flag": "--enable-cache-report",
        },
    ),
    (
        SimOptions("nim", model="glm", reasoning="glm", images=True),
        {
            **NIM,
            **GLM,
            "modalities": frozenset({"text", "image"}),
            "max_context": 131_072,
            "cached_tokens": True,
            "cached_tokens_flag": "",
        },
    ),
]


class SystemTime:
    def time(self):
        return time.time()

    def monotonic(self):
        return time.monotonic()


@pytest.mark.parametrize(("options", "truth"), CASES, ids=["vllm", "vllm-glm", "sglang-qwen", "nim-glm"])
async def test_probed_contract_is_the_truth(options, truth):
    simulator = await start(options)
    try:
        async with aiohttp.ClientSession() as session:
            client = AiohttpProbe(session, simulator.url)
            target = Target("a", builtin()[options.engine], "glm")
            report = await probe_pool(target, client, clock=SystemTime())
    finally:
        await simulator.stop()
    known = {term: fact.value for term, fact in report.contract.facts.items() if term != "tokenizer"}
    assert known == {**COMMON, **truth}
    assert report.complete
    assert report.contract.terms.tokenizer
