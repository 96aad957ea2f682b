"""Counters of a simulated server, and the Prometheus text format."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_SUFFIX = re.compile(r"_(sum|count|bucket)$")


@dataclass(slots=True)
class Counters:
    """Totals since the start. Tokens, requests, seconds of simulated time."""

    prompt_tokens: int = 0
    generation_tokens: int = 0
    cached_gpu: int = 0
    cached_host: int = 0
    cached_fs: int = 0
    finished_stop: int = 0
    finished_length: int = 0
    finished_abort: int = 0
    rejected: int = 0
    first_tokens: int = 0
    ttft_s: float = 0.0
    decode_tokens: int = 0
    decode_s: float = 0.0
    e2e_s: float = 0.0

    @property
    def finished(self) -> int:
        """Requests that ended, however."""
        return self.finished_stop + self.finished_length + self.finished_abort

    @property
    def cached(self) -> int:
        """Prompt tokens found in any tier."""
        return self.cached_gpu + self.cached_host + self.cached_fs


Sample = tuple[str, str, str, float]  # name, "gauge" | "counter" | "histogram", labels, value


def exposition(samples: Iterable[Sample], common: str) -> str:
    """Prometheus text; `common` are labels that every sample gets, written as in the format."""
    lines: list[str] = []
    typed: set[str] = set()
    for name, kind, labels, value in samples:
        family = _SUFFIX.sub("", name) if kind == "histogram" else name
        if family not in typed:
            typed.add(family)
            lines.append(f"# TYPE {family} {kind}")
        joined = ",".join(filter(None, (common, labels)))
        lines.append(f"{name}{{{joined}}} {float(value)}")
    return "\n".join(lines) + "\n"
