"""The physics of a replica as columns of numbers, in milliseconds and tokens, so that all replicas add up at once."""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from backends.profiles import Link, Profile

Floats = NDArray[np.float64]


class Col(IntEnum):
    """Index of a figure in a replica's column. Restore figures lie in blocks of three: host, fs, remote."""

    FIXED = 0
    FRONT = 1  # per prompt token
    FRONT_CAP = 2  # tokens
    PREFILL_FIXED = 3
    SMALL = 4  # per uncached token up to KNEE
    KNEE = 5  # tokens
    LINEAR = 6  # per uncached token above KNEE
    QUAD = 7  # per n^2 - p^2
    STEP = 8  # per decode step
    STEP_STREAM = 9
    STEP_TOKEN = 10
    PER_STEP = 11  # output tokens of one stream per step
    RESTORE_FIXED = 12
    RESTORE_TOKEN = 15
    RESTORE_RAMP = 18  # share of the fixed part per token; the whole of it is paid from 1 / this on
    OVERLAPS = 21  # 1.0: the fixed part, moving bytes and the front end run at the same time
    STALL = 22  # a restore from host memory, for every running stream
    CHUNK = 23  # tokens
    MIXES = 24  # 1.0: running streams get a token after every chunk
    PRICE = 25  # per second of the whole replica
    OBEYS = 26  # 1.0: the engine can be told which tiers to load


WIDTH = len(Col) + 6  # the three blocks count three each


def column(profile: Profile, *, obeys: bool) -> Floats:
    """The figures of one profile, shape (WIDTH,)."""
    out = np.zeros(WIDTH)
    plain = {
        Col.FIXED: 1e3 * profile.fixed_s,
        Col.FRONT: 1e3 * profile.frontend_s_per_token,
        Col.FRONT_CAP: profile.frontend_cap_tokens,
        Col.PREFILL_FIXED: 1e3 * profile.prefill_fixed_s,
        Col.SMALL: 1e3 * profile.prefill_s_per_small_token,
        Col.KNEE: profile.knee_tokens,
        Col.LINEAR: 1e3 * profile.prefill_s_per_token,
        Col.QUAD: 1e3 * profile.prefill_s_per_token2,
        Col.STEP: 1e3 * profile.decode_base_s,
        Col.STEP_STREAM: 1e3 * profile.decode_s_per_stream,
        Col.STEP_TOKEN: 1e3 * profile.decode_s_per_token,
        Col.PER_STEP: profile.tokens_per_step,
        Col.OVERLAPS: float(profile.host.overlaps),
        Col.STALL: 1e3 * profile.restore_stall_s,
        Col.CHUNK: profile.chunk_tokens,
        Col.MIXES: float(profile.mixes_chunks),
        Col.PRICE: profile.price_per_gpu_hour * profile.gpus / 3600.0,
        Col.OBEYS: float(obeys),
    }
    for name, value in plain.items():
        out[name] = value
    for place, link in enumerate((profile.host, profile.fs, profile.remote)):
        _restore(out, place, link, profile.kv_bytes_per_token)
    # What comes from files or from afar crosses the host link too.
    out[Col.RESTORE_TOKEN + 1 : Col.RESTORE_TOKEN + 3] += out[Col.RESTORE_TOKEN]
    return out


def _restore(out: Floats, place: int, link: Link, kv_bytes: float) -> None:
    out[Col.RESTORE_FIXED + place] = 1e3 * link.fixed_s
    out[Col.RESTORE_TOKEN + place] = 1e3 * kv_bytes / link.bytes_per_s
    out[Col.RESTORE_RAMP + place] = 1.0 / (link.ramp_tokens or 1)
