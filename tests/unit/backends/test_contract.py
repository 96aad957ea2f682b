import pytest

from backends.capabilities import IMAGE, NO_LIMIT, PRIORITY, STOP, VIDEO, capabilities
from backends.contract import TERMS, Fact, PoolContract, Source, Terms, build, layer, show


def probed(value, evidence="GET /v1/models"):
    return Fact(value, Source.PROBED, 1000.0, evidence)


def test_the_strongest_source_wins_whatever_the_order():
    layers = [
        {"max_context": probed(4096)},
        layer({"max_context": 8192, "storage": False}, Source.DEFAULT),
        layer({"max_context": 4096}, Source.DECLARED),
        layer({"max_context": 1024, "precision": "fp8"}, Source.RECIPE),
    ]
    contract = build("a", "vllm", layers)
    assert contract.terms == Terms(max_context=4096, storage=False, precision="fp8")
    assert contract.source("max_context") is Source.PROBED
    assert contract.source("storage") is Source.DEFAULT
    assert contract.source("precision") is Source.RECIPE
    assert contract.source("kv_dtype") is None
    assert contract.facts["max_context"].evidence == "GET /v1/models"
    assert contract.contradictions == ()


def test_a_probe_that_contradicts_wins_and_is_recorded():
    contract = build("a", "vllm", [layer({"max_context": 8192}, Source.DECLARED), {"max_context": probed(4096)}])
    assert contract.terms.max_context == 4096
    assert [str(entry) for entry in contract.contradictions] == [
        "a.max_context: declared 8192, probed 4096 (GET /v1/models)",
    ]
    assert not contract.held


def test_or_holds_the_pool_with_its_declaration_in_force():
    layers = [layer({"max_context": 8192}, Source.DECLARED), {"max_context": probed(4096)}]
    contract = build("a", "vllm", layers, hold_on_contradiction=True)
    assert contract.held
    assert contract.terms.max_context == 8192
    assert contract.source("max_context") is Source.DECLARED
    assert capabilities(contract).held


def test_a_recipe_or_default_that_a_probe_corrects_is_no_contradiction():
    contract = build("a", "vllm", [layer({"storage": True}, Source.RECIPE), {"storage": probed(False)}])
    assert contract.terms.storage is False
    assert contract.contradictions == ()


def test_unknown_terms_are_refused():
    with pytest.raises(ValueError, match="no term 'contxt'"):
        build("a", "vllm", [layer({"contxt": 1}, Source.DECLARED)])


def test_every_known_term_has_a_fact():
    contract = build("a", "vllm", [layer({"storage": False, "loras": frozenset()}, Source.DEFAULT)])
    known = {term for term in TERMS if getattr(contract.terms, term) is not None}
    assert known == set(contract.facts)


def test_unknown_is_allowed_but_for_what_is_dangerous():
    view = capabilities(PoolContract("a", "vllm"))
    assert view.bits & IMAGE
    assert not view.bits & (VIDEO | PRIORITY | STOP)
    assert (view.window, view.max_output, view.max_logprobs) == (NO_LIMIT,) * 3


def test_a_pool_without_reasoning_needs_no_help_with_stops():
    assert capabilities(PoolContract("a", "vllm", Terms(reasoning=False))).bits & STOP
    assert not capabilities(PoolContract("a", "vllm", Terms(reasoning=True, stop_scope="everything"))).bits & STOP


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "unknown"),
        (True, "yes"),
        (False, "no"),
        ("", "none"),
        (frozenset({"b", "a"}), "a, b"),
        (frozenset(), "none"),
        (("low", "max"), "low, max"),
        (4096, "4096"),
    ],
)
def test_show(value, text):
    assert show(value) == text
