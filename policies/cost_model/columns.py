"""The physics of replicas as columns of numbers, in milliseconds and tokens, so that all replicas add up at once."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.profiles import Profile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
At = slice | NDArray[np.intp]  # picks columns; a slice picks without a copy

# Tokens at which curves are kept; between them they are straight.
_STEPS = (1 << power for power in range(8, 21))
KNOTS: Final = (0, *(knot for step in _STEPS for knot in (step, step + step // 2)))
GRID: Final = np.array(KNOTS, dtype=np.float64)
SHORT_TOKENS: Final = 8192  # prefill up to here and beyond is learned apart
REMOTE_FIXED_MS: Final = 10.0
REMOTE_OF_HOST: Final = 5.0  # a remote store is this many times slower than the host link [prior]
NEVER_MS: Final = 1e9  # restoring from a tier that is not there


class Col(IntEnum):
    """Index of a figure in a replica's column. Restore figures lie in blocks of three: host, fs, remote."""

    PER_TOKEN = 0  # prefill of one token of a short prompt
    PREFILL_FIXED = 1  # once per prompt that is not wholly cached
    CHUNK = 2  # tokens of one prefill step
    CHUNK_STEP = 3  # every prefill step but the first, which is part of the front
    STEP = 4  # per decode step
    STEP_STREAM = 5
    STEP_TOKEN = 6
    PER_STEP = 7  # output tokens of one stream per step
    SLOTS = 8  # streams in the largest batch
    FREE = 9  # this much of a restore from host memory does not hold up running streams
    PRICE = 10  # money per second of the whole replica
    OBEYS = 11  # 1.0: the engine can be told which tiers to load
    RESTORE_LEAST = 12  # at least this long ...
    RESTORE_FIXED = 15  # ... or this (negative where the copy overlaps other work) ...
    RESTORE_TOKEN = 18  # ... plus per token


WIDTH: Final = Col.RESTORE_TOKEN + 3


@dataclass(frozen=True, slots=True)
class Curves:
    """Two curves over KNOTS for every replica, each (len(KNOTS), rows), ms.

    `front` is the time to the first token of a prompt that is wholly cached, `prefill` that of computing a prompt from
    nothing; computing only n - p tokens after p cached ones takes prefill(n) - prefill(p).
    """

    front: Floats
    prefill: Floats

    @classmethod
    def empty(cls, rows: int) -> Curves:
        """All zero."""
        return cls(np.zeros((len(KNOTS), rows)), np.zeros((len(KNOTS), rows)))


def at_tokens(curve: Floats, tokens: float) -> Floats:
    """A curve's values at one number of tokens, for all its columns; the last piece goes on beyond the end."""
    knot = min(bisect_right(KNOTS, tokens), len(KNOTS) - 1) - 1
    share = (tokens - KNOTS[knot]) / (KNOTS[knot + 1] - KNOTS[knot])
    out: Floats = curve[knot] + share * (curve[knot + 1] - curve[knot])
    return out


def column(profile: Profile, *, price_per_s: float, obeys: bool) -> Floats:
    """The single figures of one profile, shape (WIDTH,)."""
    out = np.zeros(WIDTH)
    out[Col.PER_TOKEN] = _prefill_ms(profile, SHORT_TOKENS) / SHORT_TOKENS
    out[Col.PREFILL_FIXED] = 1e3 * profile.write_through_s if profile.host else 0.0
    out[Col.CHUNK], out[Col.CHUNK_STEP] = profile.max_step_tokens, 1e3 * profile.prefill_step_s
    out[Col.STEP] = 1e3 * profile.decode_base_s
    out[Col.STEP_STREAM] = 1e3 * profile.decode_per_stream_s
    out[Col.STEP_TOKEN] = 1e3 * profile.decode_per_token_s
    out[Col.PER_STEP] = profile.tokens_per_step
    out[Col.SLOTS] = profile.max_batch
    out[Col.PRICE], out[Col.OBEYS] = price_per_s, float(obeys)
    _restore(out, profile)
    return out


def curves(profile: Profile) -> tuple[Floats, Floats]:
    """`front` and `prefill` of one profile, each (len(KNOTS),), ms."""
    front = [1e3 * (profile.front_end_s(tokens) + profile.prefill_step_s) for tokens in KNOTS]
    return np.array(front), np.array([_prefill_ms(profile, tokens) for tokens in KNOTS])


def _prefill_ms(profile: Profile, tokens: int) -> float:
    """Computing a prompt from nothing, without the fixed cost of its steps."""
    through = tokens * profile.write_through_per_token_s if profile.host else 0.0
    return 1e3 * (profile.prefill_s(0, tokens) + through)


def _restore(out: Floats, profile: Profile) -> None:
    least = out[Col.RESTORE_LEAST : Col.RESTORE_LEAST + 3]
    fixed = out[Col.RESTORE_FIXED : Col.RESTORE_FIXED + 3]
    per_token = out[Col.RESTORE_TOKEN : Col.RESTORE_TOKEN + 3]
    host, fs = profile.host, profile.fs
    least[:] = NEVER_MS
    if host is None:
        return
    out[Col.FREE] = 1e3 * host.free_s
    least[0], fixed[0] = 1e3 * host.floor_s, -1e3 * host.overlap_s
    per_token[0] = 1e3 * host.bytes_per_token / host.bytes_per_s
    least[2], per_token[2] = REMOTE_FIXED_MS, REMOTE_OF_HOST * per_token[0]
    if fs is None:
        return
    # What comes from files crosses the host link too.
    least[1] = fixed[1] = 1e3 * fs.latency_s + least[0]
    per_token[1] = 1e3 * fs.bytes_per_token / fs.bytes_per_s + per_token[0]
