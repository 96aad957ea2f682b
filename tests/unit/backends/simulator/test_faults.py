"""Reading fault specifications, and drawing from them."""

from __future__ import annotations

import random

import pytest

from backends.simulator.faults import Fault, FaultPlan, parse_faults


def test_parse() -> None:
    assert parse_faults("") == ()
    assert parse_faults("reset_after=3:0.1, queue_full") == (Fault("reset_after", 3.0, 0.1), Fault("queue_full"))
    assert parse_faults("error_frame") == (Fault("error_frame", 1.0),)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("sneeze", "unknown fault 'sneeze'"),
        ("queue_full=1", "takes no value"),
        ("reset_after=x", "not a number"),
        ("reset_after:2", "out of range"),
        ("reset_after=-1", "out of range"),
    ],
)
def test_what_is_wrong_is_named(spec: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_faults(spec)


def test_the_first_that_hits_strikes() -> None:
    plan = FaultPlan("hang_health,http_500:0,abort", random.Random(1))
    assert plan.strike(None) == Fault("abort", 3.0)
    assert plan.strike("queue_full") == Fault("queue_full")
    assert plan.strike("") is None
    assert plan.certain("hang_health")
    assert not plan.certain("http_500")
    with pytest.raises(ValueError, match="unknown"):
        plan.change("sneeze")
    assert plan.certain("abort")
    plan.change("")
    assert plan.strike(None) is None
