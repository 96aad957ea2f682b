from __future__ import annotations

import pytest

from gateway.dialects.effort import StickyEfforts, choose, validated
from gateway.dialects.target import Target
from gateway.errors import GatewayError

GLM = Target("vllm", "glm")


@pytest.mark.parametrize(
    ("asked", "effective", "hide"),
    [
        ("none", "low", True), ("minimal", "low", False), ("low", "low", False), ("medium", "high", False),
        ("high", "high", False), ("xhigh", "max", False), ("max", "max", False), ("ultra", "max", False),
        (0.2, "low", False), (0.5, "high", False), (0.9, "max", False),
    ],
)  # fmt: skip
def test_the_nearest_real_effort(asked, effective, hide):
    choice = choose(asked, GLM)
    assert (choice.effective, choice.hide) == (effective, hide)
    assert choice.header == (None if asked == effective else f"{effective};requested={asked}")


def test_a_pool_that_can_stop_reasoning():
    assert choose("none", Target("vllm", "qwen", efforts=("low", "high"), reasoning_optional=True)).effective == "none"


def test_the_strongest_stands_for_what_is_stronger_still():
    assert choose("max", Target("vllm", "x", efforts=("low", "medium"))).effective == "medium"


def test_a_pool_without_known_efforts_gets_what_was_asked():
    assert choose("medium", Target("vllm", "x", efforts=())).header is None


def test_none_asked():
    assert choose(None, GLM).effective is None
    assert choose(None, Target("vllm", "glm", default_effort="max")).effective == "max"


@pytest.mark.parametrize("value", ["ultra-high", "", 1.5, -0.1])
def test_unknown_values_are_refused(value):
    with pytest.raises(GatewayError) as caught:
        validated(value, "reasoning_effort")
    assert caught.value.param == "reasoning_effort"


def test_a_session_keeps_its_effort():
    sticky = StickyEfforts(cap=2)
    assert sticky.settle("a", None) is None
    assert sticky.settle("a", "low") == "low"
    assert sticky.settle("a", None) == "low"
    sticky.settle("b", "max")
    sticky.settle("c", "max")
    assert sticky.settle("a", None) is None  # two sessions are remembered
