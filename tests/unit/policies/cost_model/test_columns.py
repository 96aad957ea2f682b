"""Curves in straight pieces, and figures of profiles."""

from __future__ import annotations

import numpy as np
import pytest

from backends.profiles import load_profile
from policies.cost_model.columns import GRID, KNOTS, SHORT_TOKENS, Col, Curves, column, curves

VALUES = np.random.default_rng(1).random((len(KNOTS), 2, 5)).cumsum(axis=0)
TOKENS = (0.0, 1.0, 255.9, 256.0, 383.0, 5000.0, 8192.0, 1_000_000.0, float(KNOTS[-1]))


@pytest.mark.parametrize("tokens", TOKENS)
def test_a_curve_is_straight_between_its_knots(tokens: float) -> None:
    drawn = Curves.through(VALUES)
    expected = [[np.interp(tokens, GRID, VALUES[:, kind, row]) for row in range(5)] for kind in range(2)]
    assert drawn.at(tokens, slice(0, 5)) == pytest.approx(np.array(expected))
    some = np.array([4, 0])
    assert drawn.at(tokens, some) == pytest.approx(np.array(expected)[:, some])


def test_each_row_has_its_own_number_of_tokens() -> None:
    drawn = Curves.through(VALUES)
    tokens = np.random.default_rng(2).choice([*TOKENS, 3e6], (4, 5))
    values = drawn.each(tokens, np.tile(np.arange(5), (4, 1)))
    for place, count in np.ndenumerate(tokens):
        assert values[place] == pytest.approx(drawn.at(float(count), slice(0, 5))[0, place[1]])


def test_the_last_piece_goes_on_beyond_the_end() -> None:
    drawn = Curves.through(VALUES)
    end, rise = KNOTS[-1], VALUES[-1] - VALUES[-2]
    beyond = VALUES[-1] + 2.0 * rise
    assert drawn.at(end + 2.0 * (end - KNOTS[-2]), slice(0, 5)) == pytest.approx(beyond)


def test_prefill_is_drawn_in_a_short_and_a_long_part() -> None:
    short, long = curves(load_profile("h200", "vllm"))[:, 1:].T
    split = KNOTS.index(SHORT_TOKENS)
    assert not long[: split + 1].any()
    assert (short[split:] == short[split]).all()
    assert (np.diff(short + long) > 0.0).all()


def test_a_prefill_step_is_the_same_for_every_tier() -> None:
    profile = load_profile("h200", "vllm")
    figures = column(profile, price_per_s=0.0, obeys=True)
    assert figures[Col.CHUNK : Col.CHUNK + 4].tolist() == [profile.max_step_tokens] * 4
    assert figures[Col.CHUNK_STEP : Col.CHUNK_STEP + 4].tolist() == [1e3 * profile.prefill_step_s] * 4
