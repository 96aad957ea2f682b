"""What a pool declares of itself and what its clients' media may be: nodes of the configuration tree."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from backends.contract import Format, HealthCost, Modality, StopScope, ToolMode
from gateway.config.node import Node, Positive

Effort = Literal["minimal", "low", "medium", "high", "xhigh", "max"]


class Contract(Node):
    """What the pool is said to be able to do. What is left out is probed, or unknown; see `backends.contract.Terms`."""

    endpoints: frozenset[str] | None = None
    frontend: str | None = None
    modalities: frozenset[Modality] | None = None
    reasoning: bool | None = None
    reasoning_field: str | None = None
    reasoning_off: bool | None = None
    efforts: tuple[Effort, ...] | None = None
    default_effort: Effort | None = None
    thinking_budget: bool | None = None
    stop_scope: StopScope | None = None
    tool_parser: str | None = None
    tool_modes: frozenset[ToolMode] | None = None
    formats: frozenset[Format] | None = None
    logprobs: int | None = Field(None, ge=0)
    storage: bool | None = None
    max_context: int | None = Field(None, ge=1)
    max_output: int | None = Field(None, ge=1)
    tokenizer: str | None = None
    loras: frozenset[str] | None = None
    cached_tokens: bool | None = None
    priority: bool | None = None
    abort_path: str | None = None
    health_cost: HealthCost | None = None
    version: str | None = None
    gpu: str | None = None
    block_size: int | None = Field(None, ge=1)
    kv_layout: str | None = None
    conv_layout: str | None = None
    spec_method: str | None = None
    spec_tokens: int | None = Field(None, ge=0)
    hash_algorithm: str | None = None
    hash_seed: str | None = None


class Media(Node):
    """What becomes of `image_url`, `video_url` and `file` URLs of clients.

    `fetch_and_inline` fetches https URLs at the gateway and sends data URLs on; `forward` only checks them and lets
    the engine fetch; `refuse` takes data URLs only.
    """

    policy: Literal["fetch_and_inline", "forward", "refuse"] = "fetch_and_inline"
    schemes: frozenset[Literal["https", "http"]] = frozenset({"https"})
    hosts: tuple[str, ...] = ("*",)  # names that may be fetched from; `*.` at the start is a wildcard
    item_limit_bytes: int = Field(20 * 1024 * 1024, gt=0)
    total_limit_bytes: int = Field(64 * 1024 * 1024, gt=0)  # of one exchange
    items: int = Field(64, ge=1)  # of one exchange
    timeout_s: Positive = 10.0
    redirects: int = Field(3, ge=0, le=10)
