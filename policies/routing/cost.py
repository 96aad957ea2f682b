"""The cost of every candidate in milliseconds, term by term, for all replicas at once.

For replica r and a prompt of n tokens, of which the tiers up to t hold the first p(t):

    queue + tier queues + restore(p) + prefill(n - p | p) + decode(expected output) + interference put on others

taken at the best t. Only ends of tiers are compared: within one tier restore time is linear in p and prefill time is
concave in it, so the minimum is always at an end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from backends.located import Located
from policies.cost_model.columns import NEVER_MS, UNDER_WAY, At, Col, Floats
from policies.cost_model.model import FRONT_CURVE, PREFILL_CURVE
from policies.routing.columns import FleetColumns, SlateColumns, slate_columns
from policies.routing.registry import Case

TERMS: Final = (
    "front",
    "queue",
    "prefill",
    "tier_queue",
    "restore_host",
    "restore_fs",
    "restore_remote",
    "interference",
    "decode",
    "price",
    "affinity",
    "adapter",
    "preference",
    "paired",
    "transfer",
)
FRONT, QUEUE, PREFILL, TIER_QUEUE, RESTORE, INTERFERENCE, DECODE = 0, 1, 2, 3, 4, 7, 8
PRICE, AFFINITY, ADAPTER, PREFERENCE, PAIRED, TRANSFER = range(DECODE + 1, len(TERMS))
TTFT: Final = slice(FRONT, RESTORE + 3)
RESTORES: Final = slice(RESTORE, RESTORE + 3)
HOST, FILES, REMOTE = range(3)  # places among the lower tiers
ByTier = tuple[int, int, int, int]  # prompt tokens from each of TIERS
# The last tier that a candidate may read without each of RESTORES, and without what the first of them holds up.
_WITHOUT: Final = np.array((0, 1, 2, 0))[:, None]
_NONE, _HALF, _ONE = np.array(0.0), np.array(0.5), np.array(1.0)


@dataclass(slots=True)
class Sheet:
    """All terms of all candidates. `terms` has shape (len(TERMS), n): ms, but money per request in PRICE."""

    fleet: FleetColumns
    slate: SlateColumns
    terms: Floats
    figures: Floats
    reach: Floats | None = None  # tokens up to each tier, (4, n); None: nothing is cached anywhere
    cut: NDArray[np.intp] | None = None  # the last tier that each reads, (n,); None: no lower tier holds anything

    def taken(self, place: int) -> tuple[ByTier, bool]:
        """Prompt tokens that one candidate takes from each tier, and whether it holds more than that."""
        if self.reach is None:
            return (0, 0, 0, 0), False
        out, before, reach = [0, 0, 0, 0], 0, self.reach[:, place].tolist()
        cut = 0 if self.cut is None else self.cut.item(place)
        for tier in range(cut + 1):
            end = round(reach[tier])
            out[tier], before = end - before, end
        return (out[0], out[1], out[2], out[3]), reach[-1] > reach[cut]


def cost_sheet(case: Case, fleet: FleetColumns, crowding: Floats) -> Sheet:
    """Fill the sheet. `crowding`, (), weighs others' time against the newcomer's when restore and prefill compete.

    Its time goes by numpy's calls, hardly by candidates: half a microsecond for a call, half as much again where an
    operand is a Python number, three times as much where one has to be stretched or converted. Hence constants that are
    arrays, and `np.sign` for a switch where a comparison would have to become a number.
    """
    request, slate, now_s = case.request, slate_columns(case.slate, fleet.cost_model), case.now_s
    at, prompt = slate.at, float(request.prompt_tokens)
    figures = fleet.cost_model.columns[:, at]
    terms = np.zeros((len(TERMS), len(case.slate)))
    sheet = Sheet(fleet, slate, terms, figures)
    under_way = fleet.in_flight(now_s)[:, at]
    streams, added_ms = under_way[0], under_way * figures[UNDER_WAY]
    curves = fleet.cost_model.curves.at(prompt, at)
    terms[FRONT] = curves[FRONT_CURVE]
    own = figures[Col.STEP_STREAM] + prompt * figures[Col.STEP_TOKEN]
    step = figures[Col.STEP] + added_ms[0] + added_ms[2]
    terms[QUEUE] = fleet.backlog.prefill_ms(at, added_ms[1], now_s) + _HALF * step * np.sign(streams)
    _plan(case, sheet, curves[PREFILL_CURVE] + figures[Col.PREFILL_FIXED], streams * crowding)
    if case.partners:
        _divide(case, sheet, prompt)
    steps = request.output_tokens / figures[Col.PER_STEP]
    terms[DECODE] = decode = steps * (step + own)
    if streams.item(streams.argmax()) > slate.fewest_slots - 1.0:
        # One stream of a full batch ends every decode / SLOTS.
        full = streams - figures[Col.SLOTS] + 1.0
        terms[QUEUE] += np.maximum(full, _NONE) * decode / figures[Col.SLOTS]
    lost = terms[INTERFERENCE]
    lost += terms[PREFILL]
    lost += steps * own
    lost *= streams
    return sheet


def _plan(case: Case, sheet: Sheet, whole: Floats, crowd: Floats) -> None:
    """Choose the best way to the prompt's KV on each candidate; fills prefill, restore and tier queue.

    `whole` is the time to compute all of the prompt, without its steps; it is the same for all ways and added last.
    `crowd` weighs each ms of prefill put on running streams. What a restore takes from each of them goes into the row
    of interference, which is not complete yet.
    """
    slate, figures, terms, prompt = sheet.slate, sheet.figures, sheet.terms, float(case.request.prompt_tokens)
    reach, somewhere_whole = _reach(case.located, slate.at, prompt)
    sheet.reach = reach
    if reach is None:
        terms[PREFILL] = whole + np.ceil(prompt / figures[Col.CHUNK]) * figures[Col.CHUNK_STEP]
        return
    held = reach[1:] - reach[:-1]
    lower = held.item(held.argmax()) > 0.0
    beside = _beside(sheet, whole, prompt, reach if lower else reach[:1], somewhere_whole)
    if not lower:
        terms[PREFILL] = beside[0] + whole
        return
    holds = np.sign(held)
    parts = _restore(figures, held, out=terms[RESTORES])
    parts *= holds
    cost = terms[TIER_QUEUE : RESTORE + 3].copy()  # nothing yet for the first tier, for each lower one its own part
    waits = sheet.fleet.backlog.tiers_ms(slate.at, case.now_s)
    if waits is not None:
        waits *= holds
        cost[1:] += waits
    held_up = np.maximum(parts[HOST] - figures[Col.FREE], _NONE, out=terms[INTERFERENCE])
    host, files, remote = cost[1], cost[2], cost[3]
    host += crowd * held_up
    files += host
    remote += files
    cost += beside * (crowd + _ONE)
    sheet.cut = cut = cost.argmin(axis=0)
    if slate.loads_all is not None:
        cut[slate.loads_all] = len(reach) - 1
    unread = cut <= _WITHOUT
    np.putmask(terms[RESTORE : INTERFERENCE + 1], unread, _NONE)
    if waits is not None:
        np.putmask(waits, unread[:3], _NONE)
        terms[TIER_QUEUE] = waits.sum(axis=0)
    terms[PREFILL] = beside.take(cut * slate.count + slate.places) + whole


def _divide(case: Case, sheet: Sheet, prompt: float) -> None:
    """Where another replica computes the prompt, put its cost and the way of the KV in place of the own prefill."""
    terms = sheet.terms
    least, fixed, per_token = (sheet.figures[block + REMOTE] for block in _RESTORES)
    transfer = np.maximum(least, fixed + per_token * prompt)
    for place, row in enumerate(case.slate.rows):
        partner = case.partners.get(case.view.replicas[row].pool)
        if partner is None:
            continue
        terms[TTFT, place] = terms[INTERFERENCE, place] = 0.0
        terms[PAIRED, place] = partner.ranking.cost_ms
        # KV goes from server to server as it would come from a remote store; nothing is known of some hardware.
        terms[TRANSFER, place] = transfer[place] if transfer[place] < NEVER_MS else 0.0


_RESTORES: Final = (Col.RESTORE_LEAST, Col.RESTORE_FIXED, Col.RESTORE_TOKEN)


def _reach(located: Located | None, at: At, prompt: float) -> tuple[Floats | None, bool]:
    """Usable tokens up to each tier, (4, n), and whether any may be the whole prompt; None where nothing is cached.

    They are never more than the prompt, and less where the index is unsure.
    """
    if located is None:
        return None, False
    found = located.reach[:, at]
    most = found.item(found.argmax())
    if most <= 0:
        return None, False
    reach = found.astype(np.float64)
    if most > prompt:
        np.minimum(reach, prompt, out=reach)
    if located.confidence is not None:
        reach *= located.confidence[at]
    return reach, most >= prompt


def _beside(sheet: Sheet, whole: Floats, prompt: float, cached: Floats, somewhere_whole: bool) -> Floats:
    """Compute time of the uncached rest beside `whole`, ms; `cached` and it have shape (tiers, n)."""
    figures, tiers, rest = sheet.figures, len(cached), prompt - cached
    out: Floats = np.ceil(rest / figures[Col.CHUNK : Col.CHUNK + tiers])
    out *= figures[Col.CHUNK_STEP : Col.CHUNK_STEP + tiers]
    out -= sheet.fleet.cost_model.curves.each(cached, sheet.slate.rows[:tiers])
    if somewhere_whole:
        np.copyto(out, -whole, where=rest <= 0.0)
    return out


def _restore(figures: Floats, held: Floats, out: Floats) -> Floats:
    """Time to restore what each lower tier holds, (3, n), each alone on its link."""
    moving = held * figures[Col.RESTORE_TOKEN : Col.RESTORE_TOKEN + 3]
    moving += figures[Col.RESTORE_FIXED : Col.RESTORE_FIXED + 3]
    return np.maximum(moving, figures[Col.RESTORE_LEAST : Col.RESTORE_LEAST + 3], out=out)
