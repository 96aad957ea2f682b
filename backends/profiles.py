"""Hardware profiles as data: what one step of an engine costs, and what its tiers hold and move.

One source for two readers: the physics of the simulator, and the figures that the cost model starts from.
`profiles.yaml` holds measured profiles in full and the others as ratios of a measured one; docs/simulator.md says
where each figure comes from.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec
import msgspec.yaml

DEFAULT_PROFILE = "h200"
EngineName = Literal["vllm", "sglang", "nim"]
Knots = tuple[tuple[float, float], ...]


def interpolate(knots: Knots, x: float) -> float:
    """Piecewise linear through `knots` (ascending x); the outer pieces go on beyond the ends."""
    if len(knots) == 1:
        return knots[0][1]
    at = min(max(bisect_right(knots, x, key=lambda knot: knot[0]), 1), len(knots) - 1)
    (x0, y0), (x1, y1) = knots[at - 1], knots[at]
    return y0 + (y1 - y0) * (x - x0) / (x1 - x0)


@dataclass(frozen=True, slots=True)
class HostTier:
    """Blocks in host memory. `bytes_per_token` is what one rank moves over its own link.

    A copy takes max(floor_s, bytes / rate - overlap_s): engines that load layer by layer hide `overlap_s` of it behind
    the step that follows.
    """

    floor_s: float
    overlap_s: float
    bytes_per_s: float
    bytes_per_token: float
    capacity_tokens: int
    free_s: float  # running streams get steps during this much of a copy, and none during the rest


@dataclass(frozen=True, slots=True)
class FsTier:
    """Blocks in files. Reads and writes are one FIFO each, per host; `bytes_per_token` is the stored size."""

    latency_s: float
    bytes_per_s: float
    bytes_per_token: float
    capacity_tokens: int
    write_bytes_per_s: float
    drag: float  # how much longer a decode step takes while a read is under way: 0.1 is 10 %


@dataclass(frozen=True, slots=True)
class Profile:
    """What one replica costs, in seconds and tokens. Context-free: the same profile serves any traffic."""

    name: str
    front_end: Knots  # (prompt tokens, seconds) from the request's arrival to the scheduler
    intake_share: float  # share of the front end's growth that holds the scheduler loop
    prefill_step_s: float  # fixed cost of a step that prefills
    prefill_us: Knots  # (context tokens n, microseconds per token when 0..n is prefilled)
    decode_base_s: float
    decode_per_stream_s: float
    decode_per_token_s: float  # per token of context in the batch
    tokens_per_step: float  # 1, or 1 + accepted draft tokens
    write_through_s: float  # per prompt that is stored into the lower tiers
    write_through_per_token_s: float
    block_tokens: int
    gpu_cache_tokens: int
    max_batch: int
    max_step_tokens: int  # prefill chunk
    max_model_len: int
    host: HostTier | None = None
    fs: FsTier | None = None

    def front_end_s(self, tokens: int) -> float:
        """Seconds before the scheduler sees a prompt of `tokens`, intake included."""
        return max(interpolate(self.front_end, tokens), 0.0)

    def intake_s(self, tokens: int) -> float:
        """The part of `front_end_s` during which the scheduler loop stands still."""
        return self.intake_share * (self.front_end_s(tokens) - self.front_end_s(0))

    def prefill_s(self, done: int, upto: int) -> float:
        """Seconds of compute to go from `done` to `upto` tokens of one prompt, without the step's fixed cost."""
        return self._prefill_from_zero(upto) - self._prefill_from_zero(done)

    def decode_s(self, streams: int, context_tokens: int) -> float:
        """Seconds of one decode step."""
        return self.decode_base_s + self.decode_per_stream_s * streams + self.decode_per_token_s * context_tokens

    def without_tiers(self) -> Profile:
        """The same hardware with the GPU cache alone."""
        return replace(self, host=None, fs=None)

    def _prefill_from_zero(self, tokens: int) -> float:
        return tokens * interpolate(self.prefill_us, tokens) * 1e-6


class _Ratios(msgspec.Struct, forbid_unknown_fields=True):
    """How a profile follows from a measured one: times are multiplied, sizes are given."""

    base: str
    prefill: float
    prefill_context: float  # on the growth of the per-token time with context
    front_end: float
    decode_base: float
    decode_per_stream: float
    decode_per_token: float
    tokens_per_step: float
    gpu_cache_tokens: int
    max_batch: int
    max_model_len: int
    host: HostTier
    fs: FsTier


class _File(msgspec.Struct, forbid_unknown_fields=True):
    measured: dict[str, dict[str, dict[str, object]]]
    scaled: dict[str, _Ratios]


def profile_names() -> tuple[str, ...]:
    """All names that `load_profile` knows."""
    read = _read()
    return (*read.measured, *read.scaled)


def load_profile(name: str, engine: EngineName) -> Profile:
    """The profile `name` for an engine kind. Raises KeyError with the known names."""
    read = _read()
    if name in read.scaled:
        ratios = read.scaled[name]
        return _scale(name, _measured(read.measured[ratios.base], ratios.base, engine), ratios)
    if name in read.measured:
        return _measured(read.measured[name], name, engine)
    raise KeyError(f"unknown profile {name!r}; known: {', '.join(profile_names())}")


@cache
def _read() -> _File:
    """The data file, read once: parsing takes longer than anything else that is done with it."""
    return msgspec.yaml.decode(files(__package__).joinpath("profiles.yaml").read_bytes(), type=_File)


def _measured(by_engine: Mapping[str, Mapping[str, object]], name: str, engine: EngineName) -> Profile:
    kind = "sglang" if engine == "nim" else engine
    return msgspec.convert({"name": name, **by_engine[kind]}, Profile)


def _scale(name: str, base: Profile, ratios: _Ratios) -> Profile:
    return replace(
        base,
        name=name,
        front_end=tuple((tokens, seconds * ratios.front_end) for tokens, seconds in base.front_end),
        prefill_step_s=base.prefill_step_s * ratios.prefill,
        prefill_us=_scale_prefill(base.prefill_us, ratios),
        decode_base_s=base.decode_base_s * ratios.decode_base,
        decode_per_stream_s=base.decode_per_stream_s * ratios.decode_per_stream,
        decode_per_token_s=base.decode_per_token_s * ratios.decode_per_token,
        tokens_per_step=ratios.tokens_per_step,
        gpu_cache_tokens=ratios.gpu_cache_tokens,
        max_batch=ratios.max_batch,
        max_model_len=ratios.max_model_len,
        host=ratios.host,
        fs=ratios.fs,
    )


def _scale_prefill(knots: Knots, ratios: _Ratios) -> Knots:
    """Scale the time per token, and flatten its growth beyond 8 192 tokens, where the ratios are anchored."""
    anchor = interpolate(knots, 8192)
    return tuple(
        (tokens, ratios.prefill * (us if tokens <= 8192 else anchor + (us - anchor) * ratios.prefill_context))
        for tokens, us in knots
    )
