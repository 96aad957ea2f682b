"""Differences between two looks at an engine's counters."""

import pytest

from backends.counters import Copies, Counters

FIRST = Counters(100.0, 50.0, 70.0, 2.0, Copies(3.0, 30.0, 300.0, 0.3), Copies(count=1.0, rates=5.0))
THEN = Counters(180.0, 90.0, 130.0, 2.5, Copies(5.0, 50.0, 600.0, 0.5), Copies(count=3.0, rates=9.0))


def test_a_difference_is_counter_by_counter_but_for_the_gauge():
    moved = THEN.since(FIRST)
    assert moved == Counters(
        80.0, 40.0, 60.0, 2.5, Copies(2.0, 20.0, 300.0, pytest.approx(0.2)), Copies(2.0, rates=4.0)
    )


@pytest.mark.parametrize(
    "now",
    [
        Counters(),
        Counters(100.0, 49.0, 70.0, 2.0, FIRST.host, FIRST.fs),
        Counters(100.0, 50.0, 70.0, 2.0, Copies(3.0, 30.0, 300.0, 0.2), FIRST.fs),
        Counters(100.0, 50.0, 70.0, 2.0, FIRST.host),
    ],
)
def test_a_counter_that_goes_back_makes_no_difference(now):
    assert now.since(FIRST) is None


def test_a_gauge_may_go_back():
    assert FIRST.since(Counters(per_step=3.0)) == FIRST


@pytest.mark.parametrize(
    ("moved", "want"),
    [
        (Counters(drafts=40.0, accepted=60.0), 2.5),
        (Counters(drafts=40.0), 1.0),
        (Counters(drafts=15.0, accepted=30.0), 0.0),  # too few
        (Counters(drafts=40.0, accepted=1e9), 0.0),  # no engine does that
        (Counters(generated=1.0, per_step=2.4), 2.4),
        (Counters(per_step=2.4), 0.0),  # as it was put long ago
        (Counters(generated=1.0, per_step=0.0), 0.0),
        (Counters(generated=1.0, per_step=0.5), 0.0),
        (Counters(generated=1.0), 0.0),
        (Counters(), 0.0),
    ],
)
def test_tokens_per_step(moved, want):
    assert moved.tokens_per_step() == want
