"""What a finished attempt teaches: the cost model its times, the truth loop its cached tokens, affinity its replica."""

from __future__ import annotations

from typing import TYPE_CHECKING

from backends.contracts import Clock, Expected, FleetSnapshot, Replica
from gateway.dialects.base import Usage
from gateway.exchange import Exchange
from gateway.kv.cache import KvCache
from gateway.telemetry.record import AttemptRecord, ExchangeRecord
from policies.affinity import AffinityTable
from policies.cost_model.costs import Costs
from tiering.plan import Expected as Promised

if TYPE_CHECKING:
    from policies.cost_model.model import CostModel

_ENOUGH_TOKENS = 8  # of an answer, before its pace says something


class Learning:
    """Takes in every attempt that answered. Cheap when its policy predicted nothing."""

    __slots__ = ("_clock", "_costs", "_kv", "affinity")

    def __init__(self, costs: Costs, kv: KvCache, clock: Clock) -> None:
        self._costs = costs
        self._kv = kv
        self._clock = clock
        self.affinity = AffinityTable()

    def spoke(self, replica_id: str, expected: Expected, ttft_ms: float) -> None:
        """The first token of a stream has come. What else its attempt teaches is only known at its end."""
        if (cost_model := self._costs.model) is not None:
            cost_model.late(replica_id, expected, ttft_ms)

    def answered(self, x: Exchange, attempt: AttemptRecord, snapshot: FleetSnapshot) -> None:
        """One attempt answered."""
        exchange, usage = x.record, x.transcoder.usage if x.transcoder is not None else None
        replica = x.decision.prefill or attempt.replica  # whoever computed the prompt
        now_s = self._clock.monotonic()
        self.affinity.served(x.session, attempt.replica.id, now_s)
        if x.promised is not None:
            self._judge(exchange, x.promised, usage)
        expected, cost_model = x.decision.expected, self._costs.model
        if expected is None or cost_model is None or not exchange.first_token:
            return
        told = x.promised is not None and usage is not None and not usage.estimated
        cached = usage.cached if told and usage is not None else None
        ttft_ms = (exchange.first_token - attempt.started) * 1e3
        cost_model.first_token(replica.id, expected, ttft_ms, now_s, cached_tokens=cached)
        self._pace(cost_model, exchange, attempt, snapshot, usage)

    def _judge(self, exchange: ExchangeRecord, promised: Promised, usage: Usage | None) -> None:
        verdict = self._kv.observe(promised, usage)
        if verdict is None:
            return
        prediction = promised.prediction
        attributes: dict[str, str | int | float | bool] = {
            "headrace.kv.predicted_tokens": prediction.cached,
            "headrace.kv.exact": prediction.exact,
            "headrace.kv.correct": verdict.correct,
        }
        if verdict.cause is not None:
            attributes["headrace.kv.cause"] = verdict.cause.value
        if verdict.change is not None:
            attributes["headrace.kv.lookup"] = verdict.change.to
        exchange.event("kv prediction", self._clock.monotonic(), attributes)

    def _pace(
        self,
        cost_model: CostModel,
        exchange: ExchangeRecord,
        attempt: AttemptRecord,
        snapshot: FleetSnapshot,
        usage: Usage | None,
    ) -> None:
        """Mean time per output token, with the streams that ran beside it at its end."""
        tokens = usage.completion if usage is not None else 0
        if not exchange.stream or tokens < _ENOUGH_TOKENS:
            return
        replica: Replica = attempt.replica
        table = snapshot.table
        streams = max(1, table.exchanges[replica.row] + 1)  # this one has just left the table
        context = table.context_tokens[replica.row] + (usage.prompt if usage is not None else 0)
        pace_ms = (attempt.ended - exchange.first_token) * 1e3 / (tokens - 1)
        cost_model.decoded(replica.id, pace_ms, streams, context, self._clock.monotonic())
