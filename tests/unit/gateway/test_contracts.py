from backends.contract import TERMS, PoolContract, Source, Terms
from backends.engines import builtin
from backends.probing import unprobed
from deploy.recipes import Catalogue
from gateway.config.contracts import Contract
from gateway.config.model import Pool
from gateway.contracts import compatibility, declared_terms, target


def pool(**fields):
    return Pool.model_validate(
        {"name": "a", "engine": "vllm", "model": "m", "replicas": ["http://127.0.0.1:1"], **fields},
    )


def test_every_declarable_value_is_a_term():
    assert set(Contract.model_fields) <= set(TERMS)


def test_only_what_is_stated_counts():
    assert declared_terms(pool()) == {}
    stated = pool(precision="fp8", gpus=8, contract={"efforts": ["low", "max"], "storage": False})
    assert declared_terms(stated) == {"precision": "fp8", "gpus": 8, "efforts": ("low", "max"), "storage": False}


def test_target():
    made = target(pool(contract={"max_context": 10}, probe={"on_contradiction": "hold"}), builtin())
    assert made.hold_on_contradiction
    contract = unprobed(made)
    assert contract.source("max_context") is Source.DECLARED
    assert contract.source("gpu") is None


def test_a_recipe_states_what_nobody_declared():
    glm = pool(model="zai-org/GLM-5.3-Flash", hardware="h200-fp8", gpus=8, precision="fp8", contract={"storage": True})
    contract = unprobed(target(glm, builtin(), Catalogue.read()))
    assert contract.terms.gpu == "h200"
    assert contract.source("efforts") is Source.RECIPE
    assert contract.terms.efforts == ("low", "high", "max")
    assert contract.source("storage") is Source.DECLARED


def test_compatibility_of_all_pools():
    def contract(name, **terms):
        return PoolContract(name, "vllm", Terms(model="m", **terms))

    contracts = {
        "p": contract("p", spec_tokens=5),
        "d": contract("d", spec_tokens=3),
        "n": contract("n", spec_tokens=5, gpu="h100", precision="nvfp4"),
    }
    found = compatibility(contracts, pairs=[("p", "d")], roots={"/kv": ["p", "n"]})
    assert [(finding.severity, finding.term) for finding in found] == [
        ("warn", "precision"),
        ("refuse", "spec_tokens"),
        ("warn", "precision"),
    ]
    assert "5 and 3" in found[1].message
