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
    FILES,
    HOST,
    INTERFERENCE,
    PREFERENCE,
    PREFILL,
    PRICE,
    QUEUE,
    REMOTE,
    RESTORE,
    RESTORES,
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

    __slots__ = ("_crowding", "_spec", "_spill", "_weights")

    def __init__(self, spec: CostSpec) -> None:
        self._spec = spec
        self._spill = Spill()
        self._weights = _weights(spec)
        self._crowding = np.array(spec.interference)

    def rank(self, case: Case) -> Ranking:
        """Cost sheet, weights, preference, pick. Raises ValueError where there is no cost model."""
        if case.columns is None:
            raise ValueError("costs cannot be counted without a cost model")
        spec, rows = self._spec, case.slate.rows
        sheet = cost_sheet(case, case.columns, self._crowding)
        self._complete(case, sheet)
        cost: Floats = self._weights.dot(sheet.terms)
        penalty = self._spill.penalty(case.request, sheet.slate, cost)
        if penalty is not None:
            sheet.terms[PREFERENCE] = penalty
            cost = cost + penalty
        places, cost_ms = cheapest(cost, case.slate.weights, case.rng, near_ms=spec.near_ms, near_share=spec.near_share)
        first = places[0]
        ranked = [rows[place] for place in places]
        made = partial(_named, sheet.terms.take(places, axis=1), self._weights, ranked)
        terms: list[float] = sheet.terms[:, first].tolist()
        partner = case.partners.get(case.view.replicas[ranked[0]].pool) if case.partners else None
        if partner is not None:
            return Ranking(rows=ranked, expected=_divided(partner, terms), cost_ms=cost_ms, terms=made)
        per_token = sheet.figures.item(Col.PER_TOKEN, first)
        by_tier, left_out = sheet.taken(first)
        return Ranking(
            rows=ranked,
            expected=Expected(
                prompt_tokens=case.request.prompt_tokens,
                by_tier=by_tier,
                queue_tokens=terms[QUEUE] / per_token,
                wait_ms=terms[TIER_QUEUE],
                ttft_ms=sum(terms[TTFT]),
            ),
            cost_ms=cost_ms,
            charge=Charge(terms[PREFILL], terms[RESTORE + HOST] + terms[RESTORE + REMOTE], terms[RESTORE + FILES]),
            prefill_tokens=round(terms[PREFILL] / per_token),
            load_tiers=TIERS[: sheet.cut.item(first) + 1] if left_out and sheet.cut is not None else None,
            terms=made,
        )

    def _complete(self, case: Case, sheet: Sheet) -> None:
        """The terms that depend on what is wanted, not on physics alone."""
        spec, terms = self._spec, sheet.terms
        home = sheet.slate.place.get(sheet.fleet.row(case.request.home))
        if home is not None:
            terms[AFFINITY, home] = -spec.affinity_ms
        if case.request.lora:
            terms[ADAPTER] = spec.adapter_load_ms * sheet.fleet.lacks_adapter(case.request.lora)[sheet.slate.at]
        if spec.price:
            shared = terms[DECODE] / (1.0 + sheet.fleet.exchanges[sheet.slate.at])
            terms[PRICE] = sheet.figures[Col.PRICE] * (terms[PREFILL] + shared) / 1e3


def _weights(spec: CostSpec) -> Floats:
    weights = np.ones(len(TERMS))
    weights[TTFT] = spec.wait
    weights[RESTORES] += spec.work
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


def _divided(partner: Partner, terms: list[float]) -> Expected | None:
    """What is expected of the prefill side, with the way to the decode side as one more wait."""
    expected = partner.ranking.expected
    if expected is None:
        return None
    wait_ms = terms[TRANSFER] + sum(terms[TTFT])
    return replace(expected, wait_ms=expected.wait_ms + wait_ms, ttft_ms=expected.ttft_ms + wait_ms)
