"""What a finished attempt teaches: the cost model its times, the truth loop its cached tokens, affinity its replica."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from backends.contracts import Clock, Decision, FleetSnapshot, Replica
from gateway.dialects.base import Usage
from gateway.exchange import Exchange
from gateway.kv.cache import KvCache
from gateway.telemetry.record import AttemptRecord, ExchangeRecord
from policies.affinity import AffinityTable
from policies.cost_model.costs import Costs
from tiering.plan import Expected

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

    def listener(self, decision: Decision, replica: Replica) -> Callable[[float], None] | None:
        """What to call with the milliseconds to the first token of a stream; None where nothing was predicted.

        What else an attempt teaches is only known at its end.
        """
        if decision.expected is None or (cost_model := self._costs.model) is None:
            return None
        return partial(cost_model.late, (decision.prefill or replica).id, decision.expected)

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

    def _judge(self, exchange: ExchangeRecord, expected: Expected, usage: Usage | None) -> None:
        verdict = self._kv.observe(expected, usage)
        if verdict is None:
            return
        prediction = expected.prediction
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
