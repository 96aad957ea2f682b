"""NVIDIA NIM with SGLang inside: the same wire, fewer endpoints, its own health route, no response storage."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from backends.engines.base import EngineSpec
from backends.engines.handover import Handover
from backends.engines.jsonfacts import decoded, known
from backends.engines.sglang import Sglang

_PRECISION = re.compile(r"-(bf16|fp8|nvfp4|mxfp4|int4)(?:-|$)")


class Nim(Sglang):
    """The `nim` kind."""

    handover: Handover | None = None  # a container is one server
    spec = EngineSpec(
        name="nim",
        ready_path="/v1/health/ready",
        load_path="/v1/metrics",  # Prometheus text of the SGLang inside
        counters_path="/v1/metrics",
        abort_path="",  # not exposed; closing the connection is enough
        rid_field="rid",
        reasoning_field="reasoning_content",
        idle_limit_s=4.0,
        lower_priority_first=False,
        fact_paths=("/v1/metadata",),
        cached_tokens_flag="--enable-cache-report",
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

    def facts(self, path: str, headers: Mapping[str, str], body: bytes) -> Mapping[str, Any]:  # noqa: ARG002
        """Precision from the name of the profile that NIM chose."""
        profile = decoded(body).get("profile_name") if path == "/v1/metadata" else None
        found = _PRECISION.search(profile) if isinstance(profile, str) else None
        return known(precision=found[1] if found else None)
