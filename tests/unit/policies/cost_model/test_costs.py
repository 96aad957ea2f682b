"""The cost model is made when a configuration first wants it, and keeps what it learned."""

from __future__ import annotations

from backends.profiles import load_profile
from policies.cost_model.costs import Costs
from policies.cost_model.facts import PoolFacts


def test_the_model_is_made_when_wanted_and_stays() -> None:
    costs = Costs()
    facts = {"a": PoolFacts(load_profile("h200", "vllm"))}
    costs.follow(facts, wanted=False)
    assert costs.model is None
    assert costs.scores() == ()
    costs.follow(facts, wanted=True)
    made = costs.model
    assert made is not None
    assert made.facts("a") is facts["a"]
    priced = {"a": PoolFacts(load_profile("h200", "vllm"), gpus=4)}
    costs.follow(priced, wanted=False)
    assert costs.model is made, "what it learned is kept for the next configuration"
    assert made.facts("a") is priced["a"]
