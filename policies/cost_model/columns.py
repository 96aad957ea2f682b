"""The physics of replicas as columns of numbers, in milliseconds and tokens, so that all replicas add up at once."""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.contracts import TIERS
from backends.profiles import Profile

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
At = slice | NDArray[np.intp]  # picks columns; a slice picks without a copy

# Tokens at which curves are kept; between them they are straight.
_STEPS = (1 << power for power in range(8, 21))
KNOTS: Final = (0, *(knot for step in _STEPS for knot in (step, step + step // 2)))
GRID: Final = np.array(KNOTS, dtype=np.float64)
PIECES: Final = len(KNOTS) - 1
_INNER: Final = GRID[1:-1]  # its `searchsorted`, from the right, is the piece that a number of tokens lies in
SHORT_TOKENS: Final = 8192  # prefill up to here and beyond is learned apart
REMOTE_FIXED_MS: Final = 10.0
REMOTE_OF_HOST: Final = 5.0  # a remote store is this many times slower than the host link [prior]
NEVER_MS: Final = 1e9  # restoring from a tier that is not there


class Col:
    """Index of a figure in a replica's column. Plain numbers: numpy takes twice as long over an enum's members.

    Some figures lie in blocks. Those of a prefill step are there once for each of TIERS, so that a prompt's ways over
    all tiers are counted at once; those of a restore for host, fs, remote.
    """

    STEP_STREAM: Final = 0  # of a decode step, per stream
    PER_TOKEN: Final = 1  # prefill of one token of a short prompt
    STEP_TOKEN: Final = 2  # of a decode step, per token of context
    STEP: Final = 3  # of a decode step, once
    PREFILL_FIXED: Final = 4  # once per prompt that is not wholly cached, less the step that is part of the front
    PER_STEP: Final = 5  # output tokens of one stream per step
    SLOTS: Final = 6  # streams in the largest batch
    FREE: Final = 7  # this much of a restore from host memory does not hold up running streams
    PRICE: Final = 8  # money per second of the whole replica
    OBEYS: Final = 9  # 1.0: the engine can be told which tiers to load
    CHUNK: Final = 10  # tokens of one prefill step
    CHUNK_STEP: Final = 14  # each prefill step
    RESTORE_LEAST: Final = 18  # at least this long ...
    RESTORE_FIXED: Final = 21  # ... or this (negative where the copy overlaps other work) ...
    RESTORE_TOKEN: Final = 24  # ... plus per token


WIDTH: Final = Col.RESTORE_TOKEN + 3
UNDER_WAY: Final = slice(Col.STEP_STREAM, Col.STEP_TOKEN + 1)  # what one exchange, prompt token, context token adds


class Curves:
    """Curves over KNOTS for every replica, several kinds of them, in straight pieces: `start + tokens * slope`.

    Both have shape (PIECES, kinds, rows), in ms and ms per token. The last piece goes on beyond the end.
    """

    __slots__ = ("_piece", "slope", "start")

    def __init__(self, start: Floats, slope: Floats) -> None:
        self.start = start
        self.slope = slope
        self._piece = np.array(start[0].size)  # from one piece to the next, in numbers

    @classmethod
    def through(cls, values: Floats) -> Curves:
        """The curves that have these values at the knots, shape (len(KNOTS), kinds, rows)."""
        slope = np.diff(values, axis=0) / np.diff(GRID)[:, None, None]
        return cls(values[:-1] - GRID[:-1, None, None] * slope, slope)

    @classmethod
    def empty(cls, kinds: int, rows: int) -> Curves:
        """All zero."""
        return cls(np.zeros((PIECES, kinds, rows)), np.zeros((PIECES, kinds, rows)))

    def at(self, tokens: float, rows: At) -> Floats:
        """Values of all kinds at one number of tokens, (kinds, n)."""
        piece = bisect_right(KNOTS, tokens, 1, PIECES) - 1
        out: Floats = self.start[piece][:, rows] + tokens * self.slope[piece][:, rows]
        return out

    def each(self, tokens: Floats, rows: NDArray[np.intp]) -> Floats:
        """Values of the first kind, each for one of `rows` at one of `tokens`; all of one shape."""
        places = _INNER.searchsorted(tokens, side="right")
        places *= self._piece
        places += rows
        out = self.slope.take(places)
        out *= tokens
        out += self.start.take(places)
        return out


def column(profile: Profile, *, price_per_s: float, obeys: bool) -> Floats:
    """The single figures of one profile, shape (WIDTH,)."""
    out = np.zeros(WIDTH)
    out[Col.PER_TOKEN] = _prefill_ms(profile, SHORT_TOKENS) / SHORT_TOKENS
    out[Col.CHUNK : Col.CHUNK + len(TIERS)] = profile.max_step_tokens
    out[Col.CHUNK_STEP : Col.CHUNK_STEP + len(TIERS)] = 1e3 * profile.prefill_step_s
    # The first step is part of the front.
    out[Col.PREFILL_FIXED] = (1e3 * profile.write_through_s if profile.host else 0.0) - out[Col.CHUNK_STEP]
    out[Col.STEP] = 1e3 * profile.decode_base_s
    out[Col.STEP_STREAM] = 1e3 * profile.decode_per_stream_s
    out[Col.STEP_TOKEN] = 1e3 * profile.decode_per_token_s
    out[Col.PER_STEP] = profile.tokens_per_step
    out[Col.SLOTS] = profile.max_batch
    out[Col.PRICE], out[Col.OBEYS] = price_per_s, float(obeys)
    _restore(out, profile)
    return out


def curves(profile: Profile) -> Floats:
    """Curves of one profile, (len(KNOTS), 3), ms: the time to the first token of a prompt that is wholly cached, and
    that of computing a prompt from nothing, up to SHORT_TOKENS and beyond.

    Computing only n - p tokens after p cached ones takes what n take, less what p take.
    """
    front = [1e3 * (profile.front_end_s(tokens) + profile.prefill_step_s) for tokens in KNOTS]
    whole = [_prefill_ms(profile, tokens) for tokens in KNOTS]
    short = np.minimum(whole, whole[KNOTS.index(SHORT_TOKENS)])
    return np.stack((front, short, whole - short), axis=1)


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
