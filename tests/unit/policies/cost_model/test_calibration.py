"""The cost model's starting figures against times measured on an H200 with both engines."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from backends.located import Located
from backends.profiles import EngineName, Profile, load_profile
from policies.cost_model.facts import PoolFacts
from tests.unit.backends.simulator.test_calibration import DISTURBED, GOLDEN, points
from tests.unit.policies.routing.fleet import Desk

TOLERANCE = 0.10
GPU, HOST, FS = range(3)
Point = tuple[str, EngineName, str, int, tuple[int, int, int], float]

# The few figures of the cost model cannot follow every bend of the measured curve; learning closes these gaps.
COARSE = {
    "": "",
}


def cases() -> list[Point]:
    out: list[Point] = []
    vllm: dict[str, Any] = GOLDEN["vllm"]
    sglang: dict[str, Any] = GOLDEN["sglang"]
    tables: list[tuple[EngineName, str, str, Any, int | None]] = [
        ("vllm", "cold", "h200", vllm["prefill_points"], None),
        ("vllm", "gpu", "h200", vllm["gpu_hit_points"], GPU),
        ("vllm", "host", "h200", vllm["restore"]["host"]["ttft_points"], HOST),
        ("vllm", "fs_disk", "h200", vllm["restore"]["fs_disk"]["ttft_points"], FS),
        ("vllm", "fs_tmpfs", "h200-fast-fs", vllm["restore"]["fs_tmpfs"]["ttft_points"], FS),
        ("sglang", "cold", "h200", sglang["prefill_points"], None),
        ("sglang", "gpu", "h200", sglang["gpu_hit_points"], GPU),
        ("sglang", "host", "h200", sglang["restore"]["host"]["ttft_points"], HOST),
        ("sglang", "file_after_drop_caches", "h200", sglang["restore"]["file_after_drop_caches"]["ttft_points"], FS),
        ("sglang", "file_page_cache", "h200-fast-fs", sglang["restore"]["file_page_cache"]["ttft_points"], FS),
    ]
    for engine, kind, name, table, tier in tables:
        for tokens, seconds in points(table):
            held = tuple(tokens if tier == each else 0 for each in (GPU, HOST, FS))
            out.append((f"{engine} {kind} {tokens}", engine, name, tokens, held, seconds))
    for point in vllm["partial"]:
        tokens, cached = point["tokens"], point["cached"]
        held = (0, cached, 0) if point["tier"] == "host" else (0, 0, cached)
        out.append((f"vllm partial {point['tier']} {cached}", "vllm", "h200", tokens, held, point["ttft"]))
    return out


def predicted_s(profile: Profile, tokens: int, held: tuple[int, int, int]) -> float:
    desk = Desk({"a": 1}, {"a": PoolFacts(profile)}, policy="latency")
    by_tier = np.array([[tier] for tier in (*held, 0)]).cumsum(axis=0)
    return desk.decide(Located(by_tier), prompt_tokens=tokens).predicted_ttft_ms / 1e3


@pytest.mark.parametrize(("name", "engine", "profile", "tokens", "held", "want"), cases())
def test_predicted_ttft(
    name: str, engine: EngineName, profile: str, tokens: int, held: tuple[int, int, int], want: float
) -> None:
    if name in DISTURBED:
        pytest.skip(DISTURBED[name])
    loaded = load_profile(profile, engine)
    if "cold" in name:
        loaded = loaded.without_tiers()
    assert predicted_s(loaded, tokens, held) == pytest.approx(want, rel=TOLERANCE)
