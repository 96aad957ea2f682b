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
from policies.cost_model.columns import GRID, KNOTS, NEVER_MS, At, Col, Floats, at_tokens
from policies.routing.columns import FleetColumns, SlateColumns, slate_columns
from policies.routing.registry import Case

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
    "adapter",
    "preference",
    "paired",
    "transfer",
)
FRONT, QUEUE, TIER_QUEUE, RESTORE, PREFILL = 0, 1, 2, 3, 6
DECODE, INTERFERENCE, PRICE, AFFINITY, ADAPTER, PREFERENCE, PAIRED, TRANSFER = range(PREFILL + 1, len(TERMS))
TTFT: Final = slice(FRONT, PREFILL + 1)
HOST, REMOTE = 0, 2  # places among the lower tiers
WIDTHS: Final = np.diff(GRID)


@dataclass(slots=True)
class Sheet:
    """All terms of all candidates. `terms` has shape (len(TERMS), n): ms, but money per request in PRICE.

    `cut` is the last tier that each candidate reads, None when no lower tier holds anything.
    """

    fleet: FleetColumns
    slate: SlateColumns
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


def cost_sheet(case: Case, fleet: FleetColumns, crowding: float) -> Sheet:
    """Fill the sheet. `crowding` weighs others' time against the newcomer's when restore and prefill compete."""
    request, slate = case.request, slate_columns(case.slate)
    at = slate.at
    figures = fleet.cost_model.columns[:, at]
    streams, waiting, context = fleet.in_flight(case.now_s)[:, at]
    prompt = float(request.prompt_tokens)
    terms = np.zeros((len(TERMS), len(case.slate)))
    sheet = Sheet(fleet, slate, terms, figures, _reach(case.located, at, prompt, len(case.slate)))
    terms[FRONT] = at_tokens(fleet.cost_model.curves.front[:, at], prompt)
    own = figures[Col.STEP_STREAM] + prompt * figures[Col.STEP_TOKEN]
    step = figures[Col.STEP] + streams * figures[Col.STEP_STREAM] + context * figures[Col.STEP_TOKEN]
    queue = fleet.backlog.prefill_ms(at, waiting * figures[Col.PER_TOKEN], case.now_s)
    terms[QUEUE] = queue + (0.5 * step) * (streams > 0)
    prefill = _plan(sheet, prompt, streams * crowding, case.now_s)
    if case.partners:
        _divide(case, sheet, prefill, prompt)
    steps = request.output_tokens / figures[Col.PER_STEP]
    terms[DECODE] = decode = steps * (step + own)
    full = streams - figures[Col.SLOTS] + 1.0
    if (full > 0).any():  # one stream of a full batch ends every decode / SLOTS
        terms[QUEUE] += np.maximum(full, 0.0) * decode / figures[Col.SLOTS]
    lost = prefill + steps * own
    if sheet.cut is not None:
        lost += np.maximum(terms[RESTORE] - figures[Col.FREE], 0.0)
    terms[INTERFERENCE] = streams * lost
    return sheet


def _plan(sheet: Sheet, prompt: float, crowd: Floats, now_s: float) -> Floats:
    """Choose the best way to the prompt's KV on each candidate. Fills restore, tier queue and prefill; returns prefill.

    `crowd` weighs each ms of prefill put on running streams.
    """
    reach, figures, terms = sheet.reach, sheet.figures, sheet.terms
    if not (reach[-1] > reach[0]).any():
        terms[PREFILL] = prefill = _prefill(sheet, prompt, reach[0])
        return prefill
    prefills = _prefill(sheet, prompt, reach)
    held = reach[1:] - reach[:-1]
    parts = _restore(figures, held)
    waits = sheet.fleet.backlog.tier_ms(sheet.slate.at, now_s)
    load = parts if waits is None else parts + waits * (held > 0)
    load = load.cumsum(axis=0)
    cost = prefills * (1.0 + crowd)
    cost[1:] += load + crowd * np.maximum(parts[HOST] - figures[Col.FREE], 0.0)
    sheet.cut = cut = np.where(figures[Col.OBEYS] > 0, cost.argmin(axis=0), len(reach) - 1)
    read = cut > _BELOW
    np.multiply(parts, read, out=terms[RESTORE : RESTORE + 3])
    if waits is not None:
        terms[TIER_QUEUE] = (waits * (held > 0) * read).sum(axis=0)
    terms[PREFILL] = prefill = prefills[cut, sheet.slate.places]
    return prefill


def _divide(case: Case, sheet: Sheet, prefill: Floats, prompt: float) -> None:
    """Where another replica computes the prompt, put its cost and the way of the KV in place of the own prefill."""
    terms = sheet.terms
    least, fixed, per_token = (sheet.figures[block + REMOTE] for block in _RESTORES)
    transfer = np.maximum(least, fixed + per_token * prompt)
    for place, row in enumerate(case.slate.rows):
        partner = case.partners.get(case.view.replicas[row].pool)
        if partner is None:
            continue
        terms[TTFT, place] = prefill[place] = 0.0
        terms[PAIRED, place] = partner.ranking.cost_ms
        # KV goes from server to server as it would come from a remote store; nothing is known of some hardware.
        terms[TRANSFER, place] = transfer[place] if transfer[place] < NEVER_MS else 0.0


_RESTORES: Final = (Col.RESTORE_LEAST, Col.RESTORE_FIXED, Col.RESTORE_TOKEN)
_BELOW: Final = np.arange(3)[:, None]


def _reach(located: Located | None, at: At, prompt: float, count: int) -> Floats:
    """Usable tokens up to each tier, (4, n): never more than the prompt, less where the index is unsure."""
    if located is None:
        return np.zeros((4, count))
    reach: Floats = np.minimum(located.reach[:, at], prompt)
    if located.confidence is not None:
        reach = reach * located.confidence[at]
    return reach


def _prefill(sheet: Sheet, prompt: float, cached: Floats) -> Floats:
    """Compute time of the uncached rest, ms; same shape as `cached`."""
    figures, curve = sheet.figures, sheet.fleet.cost_model.curves.prefill[:, sheet.slate.at]
    steps = np.ceil((prompt - cached) / figures[Col.CHUNK])
    out: Floats = (steps - 1.0) * figures[Col.CHUNK_STEP]
    out += at_tokens(curve, prompt) + figures[Col.PREFILL_FIXED]
    if cached.any():
        places = sheet.slate.places
        knot = np.minimum(GRID.searchsorted(cached, side="right"), len(KNOTS) - 1) - 1
        below = curve[knot, places]
        share = (cached - GRID[knot]) / WIDTHS[knot]
        out -= below + share * (curve[knot + 1, places] - below)
        out *= steps > 0
    return out


def _restore(figures: Floats, held: Floats) -> Floats:
    """Time to restore what each lower tier holds, (3, n), each alone on its link."""
    moving = held * figures[Col.RESTORE_TOKEN : Col.RESTORE_TOKEN + 3]
    moving += figures[Col.RESTORE_FIXED : Col.RESTORE_FIXED + 3]
    out: Floats = np.maximum(moving, figures[Col.RESTORE_LEAST : Col.RESTORE_LEAST + 3]) * (held > 0)
    return out
