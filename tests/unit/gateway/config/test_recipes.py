import pytest

from deploy.recipes import Catalogue
from gateway.config.model import Config
from gateway.config.recipes import check_recipes, recipe_terms


def config(**pool):
    made = {"name": "a", "engine": "nim", "model": "zai-org/glm-5.3-flash", "replicas": ["http://127.0.0.1:1"], **pool}
    return Config.model_validate({"pools": [made], "models": [{"name": "glm", "pools": ["a"]}]})


def told(**pool):
    return [(problem.path, problem.warning, problem.message) for problem in check_recipes(config(**pool))]


def test_a_pool_in_the_matrix():
    assert told(hardware="h100-fp8", gpus=8, precision="fp8") == []


def test_a_pool_outside_is_refused_with_the_reason():
    [(path, warning, message)] = told(hardware="a100", gpus=8, precision="fp8")
    assert (path, warning) == ("pools[0].hardware", False)
    assert message == (
        "is outside the support matrix: a100 is not supported: the sparse-attention kernels need Hopper (SM90) or newer"
    )


def test_unlisted_turns_it_into_a_warning():
    [(_, warning, _)] = told(hardware="b200", gpus=4, precision="fp8", unlisted=True)
    assert warning


def test_a_named_recipe_holds_for_any_served_name():
    [(_, _, message)] = told(model="flash", recipe="glm-5.3-flash", contract={"gpu": "h100"}, gpus=4, precision="fp8")
    assert "4 x h100 with fp8" in message
    [(path, _, message)] = told(recipe="glm-5.3")
    assert (path, message) == ("pools[0].recipe", "unknown recipe 'glm-5.3'")


@pytest.mark.parametrize("model", ["zai-org/glm-5.3-flash", "qwen"])
def test_four_bits_on_hopper_are_a_warning(model):
    [(path, warning, message)] = told(model=model, hardware="h100-nvfp4", gpus=8, precision="nvfp4")
    assert (path, warning) == ("pools[0].hardware", True)
    assert message.startswith("pool 'a' runs nvfp4 on h100: Hopper has no 4-bit math")


@pytest.mark.parametrize("pool", [{"model": "qwen", "hardware": "a100"}, {"hardware": None}, {"hardware": "cpu"}])
def test_nothing_to_say(pool):
    assert told(**pool) == []


def test_terms_for_the_contract():
    pool = config(hardware="h100-fp8", gpus=8, precision="fp8").pools[0]
    assert recipe_terms(pool, Catalogue.read())["default_effort"] == "max"
    assert recipe_terms(config(model="qwen").pools[0], Catalogue.read()) == {}
