"""The fields of an access log line."""

from __future__ import annotations

import msgspec


class AccessLine(msgspec.Struct, omit_defaults=True):
    """The fields of one line, in their order. Fields with a default are left out when nothing is known."""

    ts: str
    event: str
    request_id: str
    trace_id: str
    status: int
    duration_ms: float
    endpoint: str
    dialect: str = ""
    tenant: str = ""
    key_id: str = ""
    client: str = ""
    model: str = ""
    resolved: str = ""
    stream: bool = False
    pool: str = ""
    replica: str = ""
    attempts: int = 0
    faults: list[str] = []
    ttft_ms: float | None = None
    decision_ms: float | None = None
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    reasoning_tokens: int = 0
    finish_reason: str = ""
    error: str = ""
    adaptations: tuple[str, ...] = ()
    received_bytes: int = 0
    sent_bytes: int = 0
    sampled: bool = False
