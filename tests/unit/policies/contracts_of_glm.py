"""Contracts for the tests of the filter: three ways to serve GLM-5.3-Flash, and two plain models."""

from backends.capabilities import Capabilities, capabilities
from backends.contract import PoolContract, Terms

COMMON = frozenset({"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages", "/tokenize"})
RAW = frozenset({"/inference/v1/generate", "/generative_scoring", "/v1/chat/completions/render"})
ALL_TOOLS = frozenset({"auto", "required", "named"})
ALL_FORMATS = frozenset({"json_object", "json_schema", "regex", "grammar"})
GLM = {
    "reasoning": True,
    "reasoning_off": False,
    "efforts": ("low", "high", "max"),
    "default_effort": "max",
    "stop_scope": "everything",
    "tool_modes": ALL_TOOLS,
    "formats": ALL_FORMATS,
    "logprobs": 20,
    "max_context": 1_048_576,
    "loras": frozenset(),
}


def view(pool: str, **terms) -> Capabilities:
    return capabilities(PoolContract(pool, "vllm", Terms(**terms)))


NIM = view(
    "nim",
    **GLM,
    endpoints=COMMON,
    frontend="python",
    modalities=frozenset({"text", "image"}),
    storage=False,
    priority=False,
    thinking_budget=False,
)
RUST = view(
    "rust",
    **GLM,
    endpoints=COMMON | RAW,
    frontend="rust",
    modalities=frozenset({"text"}),
    storage=False,
    priority=True,
    thinking_budget=True,
)
PYTHON = view(
    "python",
    **GLM,
    endpoints=COMMON | RAW,
    frontend="python",
    modalities=frozenset({"text", "image", "video"}),
    storage=False,
    priority=True,
    thinking_budget=True,
)
SMALL = view(  # a plain instruct model with a short window and few features
    "small",
    endpoints=COMMON | {"/v1/embeddings"},
    frontend="python",
    modalities=frozenset({"text"}),
    reasoning=False,
    efforts=(),
    stop_scope="answer",
    tool_modes=frozenset({"auto"}),
    formats=frozenset({"json_object"}),
    logprobs=0,
    storage=True,
    max_context=4096,
    max_output=1024,
    loras=frozenset({"sql"}),
)
OFFABLE = view(  # reasons, can be switched off, knows medium
    "offable",
    reasoning=True,
    reasoning_off=True,
    efforts=("low", "medium", "high"),
    default_effort="medium",
    stop_scope="answer",
    modalities=frozenset({"text", "audio"}),
    tool_modes=ALL_TOOLS,
    formats=ALL_FORMATS,
    logprobs=5,
    storage=False,
    max_context=131_072,
    endpoints=COMMON,
)
UNKNOWN = view("unknown")
