"""Closed forms of a run of decode steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.simulator.requests import Cached, SimRequest
from backends.simulator.timing import DecodeRun, Run

STEP = st.floats(1e-6, 0.1)


@given(STEP, st.floats(0.0, 1e-3), st.integers(1, 10_000), st.floats(0.0, 1.2))
def test_done_by_is_the_inverse_of_at(first_s: float, growth_s: float, planned: int, share: float) -> None:
    run = DecodeRun(3.0, first_s, growth_s, [], planned)
    now = 3.0 + (run.end - 3.0) * share
    done = run.done_by(now)
    assert 0 <= done <= planned
    assert done == planned or run.at(done) <= now < run.at(done + 1)


@given(STEP, st.floats(0.0, 1e-3), st.integers(1, 1000), st.floats(0.0, 1.2))
def test_a_cut_run_ends_at_the_next_boundary(first_s: float, growth_s: float, planned: int, share: float) -> None:
    run = DecodeRun(0.0, first_s, growth_s, [], planned)
    now = run.end * share
    run.cut(now)
    assert run.planned <= planned
    assert run.planned == planned or run.at(run.planned) >= now
    assert run.planned <= 1 or run.at(run.planned - 1) <= now


def test_steps_of_no_length_are_all_done_at_once() -> None:
    run = DecodeRun(1.0, 0.0, 0.0, [], 7)
    assert run.done_by(1.0) == 7
    assert run.done_by(0.5) == 0
    run.cut(1.0)
    assert run.planned == 7


@pytest.mark.parametrize("rate", [1.0, 1.7, 2.4])
def test_tokens_and_steps_agree(rate: float) -> None:
    run = Run(SimRequest("a", 10, 100), 0, Cached())
    steps = run.steps_left(rate)
    assert run.tokens_after(steps, rate) == 100
    assert run.tokens_after(steps - 1, rate) < 100
    assert run.tokens_after(0, rate) == 1
