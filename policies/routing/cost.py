"""The cost of every candidate in milliseconds, term by term, for all replicas at once.

For replica r and a prompt of n tokens, of which the tiers up to t hold the first p(t):

    queue + tier queues + restore(p) + prefill(n - p | p) + decode(expected output) + interference put on others

taken at the best t. Only ends of tiers are compared: within one tier restore time is linear in p and prefill time is
concave in it, so the minimum is always at an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.located import Located
from policies.cost_model.columns import Col
from policies.routing.registry import Case
from policies.routing.view import At, Floats

TERMS: Final = (
    "front",
    "queue",
    "tier_queue",
    "restore_host",
    "restore_fs",
    "restore_remote",
    "prefill",
    "decode",
    "interference",
    "price",
    "affinity",
    "preference",
)
FRONT, QUEUE, TIER_QUEUE, RESTORE, _, _, PREFILL, DECODE, INTERFERENCE, PRICE, AFFINITY, PREFERENCE = range(len(TERMS))
TTFT: Final = slice(FRONT, PREFILL + 1)
HOST, FS, REMOTE = range(3)


@dataclass(slots=True)
class Sheet:
    """All terms of all candidates. `terms` has shape (len(TERMS), n): ms, but money per request in PRICE.

    `cut` is the last tier that each candidate reads, None when no lower tier holds anything.
    """

    terms: Floats
    figures: Floats
    reach: Floats  # tokens up to each tier, (4, n)
    cut: NDArray[np.intp] | None = None

    def cached(self, place: int) -> tuple[int, int, int, int]:
        """Prompt tokens that one candidate takes from each tier."""
        cut = 0 if self.cut is None else int(self.cut[place])
        ends = [round(tokens) for tokens in self.reach[: cut + 1, place].tolist()]
        steps = [ends[0], *(after - before for before, after in pairwise(ends)), 0, 0, 0]
        return steps[0], steps[1], steps[2], steps[3]

    def left_out(self, place: int) -> bool:
        """Whether one candidate holds more than it should load."""
        return self.cut is not None and bool(self.reach[-1, place] > self.reach[self.cut[place], place])


def cost_sheet(case: Case, crowding: float) -> Sheet:
    """Fill the sheet. `crowding` weighs others' time against the newcomer's when restore and prefill compete."""
    request, at, view = case.request, case.slate.at, case.view
    figures = case.cost_model.columns[:, at]
    streams, waiting, context = view.in_flight(case.now_s)[:, at]
    prompt = float(request.prompt_tokens)
    terms = np.zeros((len(TERMS), len(case.slate)))
    sheet = Sheet(terms, figures, _reach(case.located, at, prompt, len(case.slate)))
    terms[FRONT] = figures[Col.FIXED] + figures[Col.FRONT] * np.minimum(prompt, figures[Col.FRONT_CAP])
    own = figures[Col.STEP_STREAM] + prompt * figures[Col.STEP_TOKEN]
    step = figures[Col.STEP] + streams * figures[Col.STEP_STREAM] + context * figures[Col.STEP_TOKEN]
    queue = case.backlog.prefill_ms(at, waiting * figures[Col.LINEAR], case.now_s)
    terms[QUEUE] = queue + (0.5 * step) * (streams > 0)
    prefill = _plan(case, sheet, prompt, streams * crowding)
    steps = request.output_tokens / figures[Col.PER_STEP]
    terms[DECODE] = steps * (step + own)
    lost = prefill + steps * own
    if sheet.cut is not None:
        lost = lost + figures[Col.STALL] * (terms[RESTORE] > 0)
    terms[INTERFERENCE] = streams * lost
    return sheet


def _plan(case: Case, sheet: Sheet, prompt: float, crowd: Floats) -> Floats:
    """Choose the best way to the prompt's KV on each candidate. Fills restore, tier queue and prefill; returns prefill.

    `crowd` weighs each ms of prefill put on running streams.
    """
    reach, figures, terms = sheet.reach, sheet.figures, sheet.terms
    if not (reach[-1] > reach[0]).any():
        terms[PREFILL] = prefill = _prefill(figures, prompt, reach[0])
        return prefill
    prefills = _prefill(figures, prompt, reach)
    held = reach[1:] - reach[:-1]
    parts = _restore(figures, held)
    waits = case.backlog.tier_ms(case.slate.at, case.now_s)
    load = parts if waits is None else parts + waits * (held > 0)
    load = load.cumsum(axis=0)
    cost = prefills * (1.0 + crowd)
    cost[1:] += load + (crowd * figures[Col.STALL]) * (load > 0)
    sheet.cut = cut = np.where(figures[Col.OBEYS] > 0, cost.argmin(axis=0), len(reach) - 1)
    read = cut > _BELOW
    np.multiply(parts, read, out=terms[RESTORE : RESTORE + 3])
    if waits is not None:
        terms[TIER_QUEUE] = (waits * (held > 0) * read).sum(axis=0)
    terms[PREFILL] = prefill = prefills[cut, case.slate.places]
    return prefill


_BELOW: Final = np.arange(3)[:, None]


def _reach(located: Located | None, at: At, prompt: float, count: int) -> Floats:
    """Usable tokens up to each tier, (4, n): never more than the prompt, less where the index is unsure."""
    if located is None:
        return np.zeros((4, count))
    reach: Floats = np.minimum(located.reach[:, at], prompt)
    if located.confidence is not None:
        reach = reach * located.confidence[at]
    return reach


def _prefill(figures: Floats, prompt: float, cached: Floats) -> Floats:
    """Compute time of the uncached rest, ms. (n^2 - p^2 is (n - p)(2n - (n - p)).)"""
    fresh = prompt - cached
    out: Floats = fresh * (figures[Col.LINEAR] + figures[Col.QUAD] * (2.0 * prompt - fresh))
    out += np.minimum(fresh, figures[Col.KNEE]) * (figures[Col.SMALL] - figures[Col.LINEAR])
    out += figures[Col.PREFILL_FIXED] * (fresh > 0)
    return out


def _restore(figures: Floats, held: Floats) -> Floats:
    """Time to restore what each lower tier holds, (3, n), each alone on its link."""
    ramp = np.minimum(1.0, held * figures[Col.RESTORE_RAMP : Col.RESTORE_RAMP + 3])
    fixed = ramp * figures[Col.RESTORE_FIXED : Col.RESTORE_FIXED + 3]
    moving = held * figures[Col.RESTORE_TOKEN : Col.RESTORE_TOKEN + 3]
    both: Floats = fixed + moving
    overlaps = figures[Col.OVERLAPS] > 0
    return np.where(overlaps, np.maximum(fixed, moving), both) if overlaps.any() else both
