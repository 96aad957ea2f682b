"""NVIDIA NIM with SGLang inside: the same wire, fewer endpoints, its own health route, no response storage."""

from __future__ import annotations

from backends.engines.base import EngineSpec
from backends.engines.sglang import Sglang


class Nim(Sglang):
    """The `nim` kind."""

    spec = EngineSpec(
        name="nim",
        ready_path="/v1/health/ready",
        load_path="/v1/metrics",  # Prometheus text of the SGLang inside
        abort_path="",  # not exposed; closing the connection is enough
        rid_field="rid",
        reasoning_field="reasoning_content",
        idle_limit_s=4.0,
        lower_priority_first=False,
        paths=frozenset(
            {
                "/v1/chat/completions",
                "/v1/completions",
                "/v1/responses",
                "/v1/messages",
                "/v1/messages/count_tokens",
                "/tokenize",
                "/detokenize",
            },
        ),
    )
