"""Which attempts are made at a prefill/decode pair, and everything such an attempt holds."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import urlsplit

from backends.contracts import Replica
from backends.engines.handover import Link, bare
from backends.fleet import Fleet, Member
from gateway.attempt import Attempt, AttemptKit
from gateway.dialects.registry import EngineRequest
from gateway.exchange import Exchange
from gateway.outgoing import engine_head
from gateway.pair import Half, Pair
from gateway.placement import BYTES_PER_TOKEN
from gateway.telemetry.record import AttemptRecord

Abort = Callable[[Member, str], None]
_ROOMS = 2**63 - 1


class Pairing:
    """Divides requests. One per process."""

    __slots__ = ("_abort", "_fleet", "_kit")

    def __init__(self, fleet: Fleet, kit: AttemptKit, abort: Abort) -> None:
        """`abort(member, rid)` tells an engine to stop."""
        self._fleet = fleet
        self._kit = kit
        self._abort = abort

    def fit(self, x: Exchange, replica: Replica, sent: EngineRequest) -> None:
        """Keep clients' own hand-over fields from a pool of pairs, and what cannot be divided from a partner."""
        pool = x.runtime.pools[replica.pool]
        handover = pool.kind.handover
        if pool.config.prefill is None or handover is None:
            return
        sent.body = bare(sent.body)
        divides = sent.generates and handover.divides(sent.path, sent.body)
        if not divides or x.decision.prefill is None or self._fleet.member(x.decision.prefill.id) is None:
            x.decision.prefill = None

    def join(self, x: Exchange, attempt: Attempt, sent: EngineRequest, *, fresh: bool) -> Pair | None:
        """The pair for an attempt that was decided to have one."""
        prefill, decode = x.decision.prefill, attempt.lease.member
        handover = decode.kind.handover
        settings = x.runtime.pools[decode.spec.name].config.prefill
        member = self._fleet.member(prefill.id) if prefill is not None else None
        if prefill is None or member is None or handover is None or settings is None:
            return None
        if handover.together:
            x.promised = None  # what was cached is told to the prefill side only, whose answer is not the client's
        half = self._half(x, attempt, sent, prefill, member)
        host = urlsplit(prefill.url).hostname or ""
        link = Link(f"[{host}]" if ":" in host else host, settings.bootstrap_port, self._room(x))
        pool = x.runtime.pools[decode.spec.name]
        return Pair(
            handover,
            link,
            half,
            decode,
            lambda length: engine_head(x.record, attempt.record, pool, decode, sent.path, length),
            lambda told: self._tell(told, attempt.rid),
            self._kit.spawn,
            fresh=fresh,
        )

    def culprit(self, attempt: Attempt) -> Member:
        """Whose success or failure an attempt was: the prefill side's when it failed there."""
        prefill = attempt.record.prefill
        if prefill is None or prefill.fault is None:
            return attempt.lease.member
        return self._fleet.member(prefill.replica.id) or attempt.lease.member

    def _half(self, x: Exchange, attempt: Attempt, sent: EngineRequest, prefill: Replica, member: Member) -> Half:
        pool = x.runtime.pools[prefill.pool]
        clock = self._kit.clock
        record = AttemptRecord(prefill, pool.config.engine, x.record.ids.hex(16), clock.monotonic())
        attempt.record.prefill = record
        return Half(
            pool,
            self._fleet.lease(member, x.decision.prefill_tokens, len(sent.body) // BYTES_PER_TOKEN, streams=False),
            record,
            lambda length: engine_head(x.record, record, pool, member, sent.path, length),
            lambda told: self._tell(told, attempt.rid),
            clock,
        )

    def _tell(self, member: Member, rid: str) -> None:
        if rid:
            self._abort(member, rid)

    def _room(self, x: Exchange) -> int:
        """Never 0, which means that nobody is there yet."""
        return int(x.record.ids.hex(16), 16) % _ROOMS + 1
