import pytest

from policies.adaptations import adapt, header, real_effort
from policies.traits import RequestTraits, needs
from tests.unit.policies.contracts_of_glm import NIM, RUST

GLM = ("low", "high", "max")


@pytest.mark.parametrize(
    ("asked", "efforts", "effective"),
    [
        ("minimal", GLM, "low"),
        ("low", GLM, "low"),
        ("medium", GLM, "high"),
        ("high", GLM, "high"),
        ("xhigh", GLM, "max"),
        ("ultra", GLM, "max"),
        ("max", ("low", "medium"), "medium"),
        ("high", (), None),
    ],
)
def test_real_effort(asked, efforts, effective):
    assert real_effort(asked, efforts) == effective


def test_header_lists_every_change():
    traits = RequestTraits(needs=needs(stop=True, priority=True), effort="medium")
    assert header(adapt(traits, NIM)) == (
        "reasoning_effort=high;requested=medium, stop=gateway;requested=engine, priority=dropped;requested=set"
    )


def test_only_changes_of_the_answer_are_inexact():
    traits = RequestTraits(needs=needs(stop=True), effort="medium")
    assert [change.exact for change in adapt(traits, RUST)] == [False, True]


def test_nothing_to_change():
    assert adapt(RequestTraits(effort="low"), NIM) == ()
