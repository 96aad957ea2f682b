import pytest

from backends.engines import builtin
from backends.engines.vllm import Vllm


def test_builtin_kinds():
    assert sorted(builtin()) == ["nim", "sglang", "vllm"]


def test_each_call_gives_a_registry_of_its_own():
    assert builtin() is not builtin()


def test_a_second_kind_of_the_same_name_is_refused():
    registry = builtin()
    with pytest.raises(ValueError, match="twice"):
        registry.register(Vllm())


def test_unknown_kind():
    with pytest.raises(KeyError):
        builtin()["tgi"]
