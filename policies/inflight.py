"""What other gateways have under way on each replica, as they tell it themselves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

PEER_STALE_S: Final = 5.0  # a gateway silent for so long no longer counts


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
