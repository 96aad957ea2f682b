"""The cost-based policies: one computation, weighed for what a tenant or model wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import ClassVar

import numpy as np
from pydantic import Field

from backends.contracts import TIERS, Expected
from policies.cost_model.columns import Col
from policies.routing.cost import (
    ADAPTER,
    AFFINITY,
    DECODE,
    INTERFERENCE,
    PREFERENCE,
    PREFILL,
    PRICE,
    QUEUE,
    RESTORE,
    TERMS,
    TIER_QUEUE,
    TRANSFER,
    TTFT,
    Sheet,
    cost_sheet,
)
from policies.routing.pick import Spill, cheapest
from policies.routing.registry import Case, Charge, Partner, PolicySpec, Ranking, Terms
from policies.routing.view import Floats


class CostSpec(PolicySpec):
    """Weights of the terms. With all at 1 the cost is the time until the answer is complete, for everybody."""

    looks_up: ClassVar[bool] = True

    wait: float = Field(1.0, ge=0)  # queue, restore, prefill: the newcomer's own time to first token
    work: float = Field(0.0, ge=0)  # restore and prefill once more: work that keeps a replica from others
    decode: float = Field(0.02, ge=0)  # the newcomer's own decode time
    interference: float = Field(0.04, ge=0)  # each ms that each running stream loses
    price: float = Field(0.0, ge=0)  # ms that one unit of money is worth
    affinity_ms: float = Field(20.0, ge=0)  # credit of the replica that served the session last
    adapter_load_ms: float = Field(1500.0, ge=0)  # a LoRA adapter that a replica has to load first
    near_ms: float = Field(2.0, ge=0)
    near_share: float = Field(0.02, ge=0)


class CostPolicy:
    """Ranks by expected milliseconds."""

    __slots__ = ("_spec", "_spill", "_weights")

    def __init__(self, spec: CostSpec) -> None:
        self._spec = spec
        self._spill = Spill()
        self._weights = _weights(spec)

    def rank(self, case: Case) -> Ranking:
        """Cost sheet, weights, preference, pick."""
        spec, slate = self._spec, case.slate
        sheet = cost_sheet(case, spec.interference)
        self._complete(case, sheet)
        cost: Floats = self._weights @ sheet.terms
        penalty = self._spill.penalty(case.request, slate, cost)
        if penalty is not None:
            sheet.terms[PREFERENCE] = penalty
            cost = cost + penalty
        order = cheapest(cost, slate.weight, case.rng, near_ms=spec.near_ms, near_share=spec.near_share)
        first = int(order[0])
        places: list[int] = order.tolist()
        rows = [slate.rows[place] for place in places]
        partner = case.partners.get(case.view.replicas[rows[0]].pool)
        made = partial(_named, sheet.terms[:, order], self._weights, rows)
        cost_ms = float(cost[first])
        if partner is not None:
            return Ranking(rows=rows, expected=_divided(partner, sheet, first), cost_ms=cost_ms, terms=made)
        return Ranking(
            rows=rows,
            expected=_expected(case, sheet, first),
            cost_ms=cost_ms,
            charge=_charge(sheet, first),
            prefill_tokens=round(float(sheet.terms[PREFILL, first] / sheet.figures[Col.PER_TOKEN, first])),
            load_tiers=TIERS[: int(sheet.cut[first]) + 1] if sheet.cut is not None and sheet.left_out(first) else None,
            terms=made,
        )

    def _complete(self, case: Case, sheet: Sheet) -> None:
        """The terms that depend on what is wanted, not on physics alone."""
        spec, terms = self._spec, sheet.terms
        home = case.view.row(case.request.home) if case.request.home else -1
        if home >= 0 and home in case.slate.rows:
            terms[AFFINITY, case.slate.rows.index(home)] = -spec.affinity_ms
        if case.request.lora:
            terms[ADAPTER] = spec.adapter_load_ms * case.view.lacks_adapter(case.request.lora)[case.slate.at]
        if spec.price:
            shared = terms[DECODE] / (1.0 + case.view.exchanges[case.slate.at])
            terms[PRICE] = sheet.figures[Col.PRICE] * (terms[PREFILL] + shared) / 1e3


def _weights(spec: CostSpec) -> Floats:
    weights = np.ones(len(TERMS))
    weights[TTFT] = spec.wait
    weights[RESTORE : RESTORE + 3] += spec.work
    weights[PREFILL] += spec.work
    weights[DECODE] = spec.decode
    weights[INTERFERENCE] = spec.interference
    weights[PRICE] = spec.price
    weights[TRANSFER] = spec.wait
    return weights


def _named(terms: Floats, weights: Floats, rows: list[int]) -> Mapping[int, Terms]:
    """Weighed terms by row, those that are not zero."""
    weighed = (terms.T * weights).tolist()
    return {
        row: {name: value for name, value in zip(TERMS, line, strict=True) if value}
        for row, line in zip(rows, weighed, strict=True)
    }


def _expected(case: Case, sheet: Sheet, place: int) -> Expected:
    column = sheet.terms[TTFT, place].tolist()
    return Expected(
        prompt_tokens=case.request.prompt_tokens,
        by_tier=sheet.cached(place),
        queue_tokens=column[QUEUE] / float(sheet.figures[Col.PER_TOKEN, place]),
        wait_ms=column[TIER_QUEUE],
        ttft_ms=sum(column),
    )


def _divided(partner: Partner, sheet: Sheet, place: int) -> Expected | None:
    """What is expected of the prefill side, with the way to the decode side as one more wait."""
    expected = partner.ranking.expected
    if expected is None:
        return None
    wait_ms = float(sheet.terms[TRANSFER, place] + sheet.terms[TTFT, place].sum())
    return replace(expected, wait_ms=expected.wait_ms + wait_ms, ttft_ms=expected.ttft_ms + wait_ms)


def _charge(sheet: Sheet, place: int) -> Charge:
    host, files, remote, prefill = sheet.terms[RESTORE : PREFILL + 1, place].tolist()
    return Charge(prefill, host + remote, files)


LATENCY = CostSpec()
THROUGHPUT = CostSpec(wait=0.2, work=1.0, decode=0.2, interference=0.05, affinity_ms=5.0)
COST = CostSpec(wait=0.1, work=0.0, decode=0.0, interference=0.01, price=1e6, affinity_ms=5.0)
STICKY = CostSpec(affinity_ms=3000.0)
