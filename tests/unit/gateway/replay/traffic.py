"""Small traces and fleets for replay tests."""

from __future__ import annotations

import random

from gateway.config.model import Config
from gateway.replay.trace import Arrival, Trace
from gateway.replay.world import SimPool

POOLS = (
    SimPool("h100", "vllm", "h100-fp8", ("http://h100-0:8000", "http://h100-1:8000"), gpus=8),
    SimPool("gb200", "vllm", "gb200-mtp", ("http://gb200-0:8000",), gpus=4),
)


def config(*, hardware: str = "h100-fp8", engine: str = "vllm") -> Config:
    """Two unlike pools of one model."""
    return Config.model_validate(
        {
            "pools": [
                {
                    "name": "a",
                    "engine": engine,
                    "model": "m",
                    "hardware": hardware,
                    "gpus": 8,
                    "replicas": ["http://a0:8000", "http://a1:8000"],
                },
                {
                    "name": "b",
                    "engine": "sglang",
                    "model": "m",
                    "hardware": "gb200-mtp",
                    "gpus": 4,
                    "replicas": ["http://b0:8000"],
                },
            ],
            "models": [{"name": "glm", "aliases": ["glm-latest"], "pools": ["a", "b"]}],
        }
    )


def conversations(sessions: int, turns: int, *, rate: float = 4.0, seed: int = 1) -> Trace:
    """Sessions that come back with all they said before; tenants x and y by turns."""
    rng = random.Random(seed)
    arrivals = []
    for session in range(sessions):
        at = rng.uniform(0.0, sessions * turns / rate)
        blocks: tuple[int, ...] = ()
        for turn in range(turns):
            blocks = (*blocks, *(100_000 * session + 100 * turn + step for step in range(rng.randrange(1, 8))))
            arrivals.append(
                Arrival(
                    at,
                    prompt_tokens=512 * len(blocks) + rng.randrange(1, 512),
                    output_tokens=rng.randrange(1, 200),
                    blocks=blocks,
                    tenant="xy"[session % 2],
                    session=f"s{session}",
                )
            )
            at += rng.uniform(5.0, 20.0)
    arrivals.sort(key=lambda arrival: arrival.at_s)
    return Trace("conversations", tuple(arrivals))
