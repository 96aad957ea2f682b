"""Hybrid models: attention blocks alone do not make a prefix usable.

A recurrent layer keeps one state per checkpoint, and an engine can resume only where the states of all recurrent
groups exist. Counting attention blocks over-estimates; the match is cut back to the last such boundary.
"""

from __future__ import annotations

import numpy as np

from backends.contracts import TIERS
from tiering.chain import Chain
from tiering.index.locate import masks_of, unpack
from tiering.index.memory import I64, Bools, Memory
from tiering.index.table import BlockTable, starts_of


def cut_back(memory: Memory, table: BlockTable, chain: Chain, holders: I64, reach: I64) -> I64:
    """Blocks (tiers, k) that can be restored: `reach` (tiers, k) cut to the last boundary all groups have."""
    blocks = int(reach.max(initial=0))
    if not blocks:
        return reach
    boundary = np.ones((blocks, len(TIERS), len(holders)), np.bool_)
    for keys, window in chain.windows:
        sets = table.sets_of(keys[:blocks])
        starts = starts_of(sets[1:] != sets[:-1])
        held = unpack(masks_of(memory, sets.take(starts[:-1])), holders)
        within = np.logical_or.accumulate(held, axis=1)  # readable from tiers 0..t
        boundary &= _whole(np.repeat(within, np.diff(starts), axis=0), window)
    ends = np.arange(1, blocks + 1)[:, None, None]
    usable: I64 = np.where(boundary & (ends <= reach), ends, 0).max(axis=0)
    return usable


def _whole(held: Bools, window: int) -> Bools:
    """Whether the `window` blocks up to and with each block (n, tiers, k) are all held; fewer at the beginning."""
    if window == 1:
        return held
    index = np.arange(1, len(held) + 1)[:, None, None]
    last_gap = np.maximum.accumulate(np.where(held, 0, index), axis=0)
    whole: Bools = last_gap <= np.maximum(index - window, 0)
    return whole
