"""The cost-based policies: the cost sheet, weighed by a profile."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np

from backends.contracts import TIERS, Expected
from policies.cost_model.columns import Col, Floats
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
from policies.routing.profiles import CostSpec
from policies.routing.registry import Case, Charge, Partner, Ranking, Terms


class CostPolicy:
    """Ranks by expected milliseconds."""

    __slots__ = ("_spec", "_spill", "_weights")

    def __init__(self, spec: CostSpec) -> None:
        self._spec = spec
        self._spill = Spill()
        self._weights = _weights(spec)

    def rank(self, case: Case) -> Ranking:
        """Cost sheet, weights, preference, pick. Raises ValueError where there is no cost model."""
        if case.columns is None:
            raise ValueError("costs cannot be counted without a cost model")
        spec, rows = self._spec, case.slate.rows
        sheet = cost_sheet(case, case.columns, spec.interference)
        slate = sheet.slate
        self._complete(case, sheet)
        cost: Floats = self._weights @ sheet.terms
        penalty = self._spill.penalty(case.request, slate, cost)
        if penalty is not None:
            sheet.terms[PREFERENCE] = penalty
            cost = cost + penalty
        order = cheapest(cost, slate.weight, case.rng, near_ms=spec.near_ms, near_share=spec.near_share)
        first = int(order[0])
        places: list[int] = order.tolist()
        ranked = [rows[place] for place in places]
        partner = case.partners.get(case.view.replicas[ranked[0]].pool)
        made = partial(_named, sheet.terms[:, order], self._weights, ranked)
        cost_ms = float(cost[first])
        if partner is not None:
            return Ranking(rows=ranked, expected=_divided(partner, sheet, first), cost_ms=cost_ms, terms=made)
        return Ranking(
            rows=ranked,
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
        home = sheet.fleet.row(case.request.home) if case.request.home else -1
        if home >= 0 and home in case.slate.rows:
            terms[AFFINITY, case.slate.rows.index(home)] = -spec.affinity_ms
        if case.request.lora:
            terms[ADAPTER] = spec.adapter_load_ms * sheet.fleet.lacks_adapter(case.request.lora)[sheet.slate.at]
        if spec.price:
            shared = terms[DECODE] / (1.0 + sheet.fleet.exchanges[sheet.slate.at])
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
