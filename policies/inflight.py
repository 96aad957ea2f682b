"""What is under way on each replica: our own leases at once, everybody else's from late and partial reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.contracts import Load

Floats = NDArray[np.float64]

REPORT_HALF_LIFE_S: Final = 3.0  # what an engine said of others is worth half after so long
PEER_STALE_S: Final = 5.0  # a gateway silent for so long no longer counts
TYPICAL_PROMPT: Final = 2000.0  # tokens of a waiting request when the engine reports only a number of requests


@dataclass(frozen=True, slots=True)
class PeerLoad:
    """What another gateway has in flight on one replica."""

    exchanges: int = 0
    prefill_tokens: int = 0
    context_tokens: int = 0


class PeerTable:
    """The newest totals of other gateways. Totals, not differences: a lost message heals with the next one."""

    __slots__ = ("_peers", "version")

    def __init__(self) -> None:
        self._peers: dict[str, tuple[float, int, Mapping[str, PeerLoad]]] = {}
        self.version = 0

    def update(self, peer: str, sequence: int, loads: Mapping[str, PeerLoad], now_s: float) -> bool:
        """Take a peer's message; False when an equal or newer one was taken before (sequence 0 is a restart)."""
        known = self._peers.get(peer)
        if known is not None and 0 < sequence <= known[1]:
            return False
        self._peers[peer] = (now_s, sequence, loads)
        self.version += 1
        return True

    def forget_stale(self, now_s: float) -> None:
        """Drop peers that have been silent too long: they left, or we cannot hear them."""
        gone = [peer for peer, (at_s, _, _) in self._peers.items() if now_s - at_s > PEER_STALE_S]
        for peer in gone:
            del self._peers[peer]
        self.version += bool(gone)

    def __len__(self) -> int:
        return len(self._peers)

    def totals(self) -> Mapping[str, PeerLoad]:
        """Sum over all peers, by replica id."""
        out: dict[str, PeerLoad] = {}
        for _, _, loads in self._peers.values():
            for replica, load in loads.items():
                known = out.get(replica, PeerLoad())
                out[replica] = PeerLoad(
                    known.exchanges + load.exchanges,
                    known.prefill_tokens + load.prefill_tokens,
                    known.context_tokens + load.context_tokens,
                )
        return out


@dataclass(slots=True)
class Others:
    """Work of others by row, as last heard. Shapes (rows,). Owned by one `FleetView`."""

    exchanges: Floats
    prefill_tokens: Floats
    context_tokens: Floats
    at_s: Floats  # when the engine said so; 0: never

    @classmethod
    def nothing(cls, rows: int) -> Others:
        """No word from anybody."""
        return cls(np.zeros(rows), np.zeros(rows), np.zeros(rows), np.zeros(rows))

    def hear(self, row: int, load: Load, own_exchanges: int, own_prefill_tokens: int, own_context_tokens: int) -> None:
        """An engine reported. What we have there ourselves at that moment is not somebody else's."""
        total = load.running + load.waiting
        others = max(0, total - own_exchanges)
        if load.waiting_uncached_tokens:
            waiting = max(0, load.waiting_uncached_tokens - own_prefill_tokens)
        else:
            waiting = int(others * TYPICAL_PROMPT * load.waiting / total) if total else 0
        context = max(0, int(load.kv_used * load.kv_capacity_tokens) - own_context_tokens)
        self.exchanges[row] = others
        self.prefill_tokens[row] = waiting
        self.context_tokens[row] = context if others else 0
        self.at_s[row] = load.at_s

    def trust(self, now_s: float) -> Floats:
        """How much of each report still holds, 0..1 by age."""
        return np.exp2((self.at_s - now_s) / REPORT_HALF_LIFE_S)
