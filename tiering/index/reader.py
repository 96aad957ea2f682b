"""Reading the prefix index: which replica holds how much of a prompt, in which tier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from backends.contracts import TIERS, Replica
from backends.located import Located
from tiering.chain import Chain, sampled
from tiering.index.hybrid import cut_back
from tiering.index.locate import NOBODY, Match, runs_of, runs_of_chunks, unpack
from tiering.index.memory import I64, NAMES_VERSION, SAMPLE, SEQUENCE, U64, Bools, Memory
from tiering.index.replica_sets import Holders
from tiering.index.table import BlockTable

_TRIES = 8  # reads of a table that the writer keeps changing, before the prompt counts as unknown
_SPINS = 4000  # looks at the sequence while the writer is busy: longer than one chunk takes


@dataclass(frozen=True, slots=True)
class Rows:
    """Where holders stand in a fleet snapshot: row (holders,), DP rank (holders,). Made once per snapshot.

    A holder that is not in the snapshot has row `count`: one column more, which is cut off.
    """

    row: I64
    rank: I64
    count: int
    ranked: bool  # some replica has several ranks


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

    def match(self, chain: Chain) -> Match:
        """Longest usable prefix of every holder that has the first block of `chain`."""
        if self._sample > 1:
            chain = sampled(chain, self._sample)
        for _ in range(_TRIES):
            before = self._even()
            if before is None:
                break
            match = self._match(chain)
            if int(self._memory.header[SEQUENCE]) == before:
                return match
        return NOBODY

    def locate(self, chain: Chain, rows: Rows) -> Located:
        """The same in columns by row of the snapshot, the best rank of each replica."""
        match = self.match(chain)
        reach = np.zeros((len(TIERS), rows.count + 1), np.int64)
        row = rows.row[match.holders]
        if not rows.ranked:
            reach[:, row] = match.reach
            return Located(reach[:, :-1])
        best = np.full(rows.count + 1, -1, np.int64)
        order = np.argsort(match.reach[-1], kind="stable")  # ascending: the best rank of a row is written last
        reach[:, row[order]] = match.reach[:, order]
        best[row[order]] = rows.rank[match.holders[order]]
        return Located(reach[:, :-1], dp_rank=best[:-1])

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

    def _match(self, chain: Chain) -> Match:
        chunked = chain.chunk > 1
        sets = self._table.sets_of(chain.keys) if chunked else self._table.sets_along(chain.keys)
        if not len(sets):
            return NOBODY
        runs = runs_of_chunks(self._memory, sets, chain.chunk) if chunked else runs_of(self._memory, sets)
        if runs is None:
            return NOBODY
        reach = runs.reach()
        if chain.windows:
            reach = cut_back(self._memory, self._table, chain, runs.holders, reach)
        return Match(runs.holders, chain.ends[reach] if chain.uneven is not None else reach * chain.block)

    def close(self) -> None:
        """Let go of the memory."""
        self._table.release()
        self._memory.close()
