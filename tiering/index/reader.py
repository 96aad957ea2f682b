"""Reading the prefix index: which replica holds how much of a prompt, in which tier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backends.contracts import TIERS, Replica
from backends.located import Located
from tiering.chain import Chain, sampled
from tiering.index.hybrid import cut_back
from tiering.index.locate import Prefixes, prefixes, prefixes_of_chunks, unpack
from tiering.index.memory import I64, NAMES_VERSION, SAMPLE, SEQUENCE, U64, Bools, Memory
from tiering.index.replica_sets import Holders
from tiering.index.table import BlockTable

_TRIES = 8  # reads of a table that the writer keeps changing, before the prompt counts as unknown
_SPINS = 4000  # looks at the sequence while the writer is busy: longer than one chunk takes
_FEW = 16  # pairs of tier and holder that are quicker written one by one


@dataclass(frozen=True, slots=True)
class Rows:
    """Where holders stand in a fleet snapshot: row (holders,), DP rank (holders,). Made once per snapshot.

    A holder that is not in the snapshot has row `count`: one column more, which is cut off.
    """

    row: I64
    rank: I64
    count: int
    ranked: bool  # some replica has several ranks

    def place(self, holders: I64, blocks: I64, reach: I64) -> I64 | None:
        """Write `blocks` (tiers, k) of `holders` (k,) to `reach` (tiers, count + 1). Returns the best ranks, if any."""
        row = self.row[holders]
        if not self.ranked:
            reach[:, row] = blocks
            return None
        best = np.full(self.count + 1, -1, np.int64)
        order = np.argsort(blocks[-1], kind="stable")  # ascending: the best rank of a row is written last
        reach[:, row[order]] = blocks[:, order]
        best[row[order]] = self.rank[holders[order]]
        return best[:-1]


def holder_name(replica: str, rank: int = 0) -> str:
    """Name of one DP rank of a replica in the index."""
    return f"{replica}#{rank}" if rank else replica


class IndexReader:
    """Look-ups. Lock-free: a read that met a write is made again."""

    __slots__ = ("_holders", "_memory", "_names_version", "_sample", "_table")

    def __init__(self, memory: Memory) -> None:
        self._memory = memory
        self._table = BlockTable(memory)
        self._holders = Holders(memory)
        self._names_version = int(memory.header[NAMES_VERSION])
        self._sample = int(memory.header[SAMPLE])

    @property
    def names_version(self) -> int:
        """Grows when holders come or go: `Rows` made before are stale."""
        return int(self._memory.header[NAMES_VERSION])

    def rows(self, replicas: Sequence[Replica]) -> Rows:
        """Rows of `replicas` for `locate`, for as long as `names_version` stays."""
        if self._names_version != self.names_version:
            self._holders, self._names_version = Holders(self._memory), self.names_version
        count = max((replica.row + 1 for replica in replicas), default=0)
        row = np.full(self._memory.sizes.holders, count, np.int64)
        rank = np.zeros(self._memory.sizes.holders, np.int64)
        for replica in replicas:
            for number in range(replica.dp_ranks):
                bit = self._holders.get(holder_name(replica.id, number))
                if bit is not None:
                    row[bit], rank[bit] = replica.row, number
        return Rows(row, rank, count, any(replica.dp_ranks > 1 for replica in replicas))

    def locate(self, chain: Chain, rows: Rows) -> Located:
        """Longest usable prefix of `chain` on every replica, in columns by row of the snapshot; of the best rank."""
        if self._sample > 1:
            chain = sampled(chain, self._sample)
        for _ in range(_TRIES):
            before = self._even()
            if before is None:
                break
            located = self._locate(chain, rows)
            if int(self._memory.header[SEQUENCE]) == before:
                return located
        return Located.nothing(rows.count)

    def holds(self, holder: str, keys: U64) -> Bools:
        """Whether `holder` has each key (n,) in any tier."""
        bit = self._holders.get(holder)
        if bit is None:
            return np.zeros(len(keys), np.bool_)
        masks = self._memory.masks[self._table.sets_of(keys)]
        held: Bools = np.logical_or.reduce(unpack(masks, np.array([bit])), axis=1)[:, 0]
        return held

    def _even(self) -> int | None:
        for _ in range(_SPINS):
            sequence = int(self._memory.header[SEQUENCE])
            if not sequence & 1:
                return sequence
        return None

    def _locate(self, chain: Chain, rows: Rows) -> Located:
        found = self._prefixes(chain)
        if not found.usable:
            return Located.nothing(rows.count)
        reach = np.zeros((len(TIERS), rows.count + 1), np.int64)  # in blocks at first
        best = None
        if found.bits > _FEW or rows.ranked or chain.windows:
            holders, blocks = found.arrays()
            if chain.windows:
                blocks = cut_back(self._memory, self._table, chain, holders, blocks)
            best = rows.place(holders, blocks, reach)
        else:
            for tier, holder, end in found.each():
                reach[tier, rows.row[holder]] = end
        reach = chain.uneven.take(reach) if chain.uneven is not None else reach * chain.block
        return Located(reach[:, :-1], dp_rank=best)

    def _prefixes(self, chain: Chain) -> Prefixes:
        if chain.chunk > 1 and len(chain.keys):
            return prefixes_of_chunks(self._memory, self._table.sets_of(chain.keys), chain.chunk)
        return prefixes(self._memory, self._table.runs_along(chain.keys))

    def close(self) -> None:
        """Let go of the memory."""
        self._table.release()
        self._memory.close()
