from backends.contract import TERMS, Source
from backends.engines import builtin
from backends.probing import unprobed
from gateway.config.contracts import Contract
from gateway.config.model import Pool
from gateway.contracts import declared_terms, target


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
    made = target(pool(contract={"max_context": 10}, probe={"on_contradiction": "hold"}), builtin(), {"gpu": "h100"})
    assert made.hold_on_contradiction
    contract = unprobed(made)
    assert contract.source("max_context") is Source.DECLARED
    assert contract.source("gpu") is Source.RECIPE
