"""What goes into and comes out of the cost model, in words that do not need its columns."""

from __future__ import annotations

from dataclasses import dataclass

from backends.profiles import Profile


@dataclass(frozen=True, slots=True)
class PoolFacts:
    """What the configuration says of a pool's speed."""

    profile: Profile
    gpus: int = 1  # of one replica
    price_per_gpu_hour: float = 1.0  # in any unit of money
    obeys_load_tiers: bool = False  # the engine can be told which tiers to load


@dataclass(frozen=True, slots=True)
class Score:
    """How well the times of one replica are predicted: what was expected against what was observed.

    Errors are moving means of |observed - expected| / observed, 0.0 before the first observation. The expected time to
    the first token is that for the cached tokens which the engine reported: what the prefix index gets wrong is not in
    it.
    """

    pool: str
    replica: str
    ttft_error: float
    ttft_seen: int  # observations
    pace_error: float  # of the time per output token
    pace_seen: int
