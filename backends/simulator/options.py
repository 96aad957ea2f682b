"""How a simulated server is started."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from backends.profiles import EngineName


@dataclass(frozen=True, slots=True)
class SimOptions:
    """One simulated engine server. The defaults suit tests: no time passes, and what can be shown is shown."""

    engine: EngineName
    port: int = 0  # 0: any free one
    host: str = "127.0.0.1"
    model: str = "sim"
    aliases: tuple[str, ...] = ()  # further served names (vLLM only; SGLang has one)
    profile: str = "instant"
    tiers: bool = True  # host and fs tiers, where the profile has them
    kv_events: int | None = None  # port of the PUB socket; the replay socket is on the next one; 0: any two
    fs_root: Path | None = None  # files of the fs tier; None: in memory
    time_scale: float = 1.0  # simulated seconds per second
    fault: str = ""  # see `faults`
    seed: int = 0
    tick_s: float = 0.001  # tokens that fall into one tick are sent together
    max_queued: int | None = None
    max_model_len: int | None = None
    block_tokens: int | None = None
    reasoning: Literal["", "glm", "qwen"] = ""  # glm: always, by effort; qwen: unless enable_thinking is false
    images: bool = False
    embeddings: bool = False  # serve /v1/embeddings and /v1/rerank
    report_cached: bool = True  # --enable-prompt-tokens-details, --enable-cache-report
    request_id_headers: bool = False  # vLLM's --enable-request-id-headers
    api_key: str = ""
    keep_requests: int = 1000  # how many requests /sim/requests remembers
    drain_s: float = 2.0  # how long running requests may take after SIGTERM
