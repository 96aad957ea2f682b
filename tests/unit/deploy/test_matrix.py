"""GLM-5.3-Flash's support matrix, row by row as the two source documents state it."""

import pytest

from backends.contract import TERMS
from deploy.recipes import Catalogue, Deployment

CATALOGUE = Catalogue.read()
GLM = CATALOGUE.recipes["glm-5.3-flash"]


def rule(engine, gpu, gpus, precision, **more):
    return CATALOGUE.rule(GLM, Deployment(engine, gpu, gpus, precision, **more))


VALID = [
    ("nim", "h100", 8, "fp8"),
    ("nim", "h100", 8, "nvfp4"),
    ("nim", "b200", 8, "bf16"),
    ("nim", "h200", 8, "bf16"),
    ("nim", "h200-nvl", 8, "bf16"),
    ("nim", "b300", 4, "bf16"),
    ("nim", "b300", 2, "nvfp4"),
    ("nim", "h200", 4, "fp8"),
    ("nim", "h200", 4, "nvfp4"),
    ("nim", "gb200", 4, "nvfp4"),
    ("vllm", "h200", 8, "fp8"),
    ("vllm", "h200", 4, "fp8"),
    ("vllm", "gb200", 4, "fp8"),
    ("vllm", "b300", 2, "nvfp4"),
    ("vllm", "b300", 4, "bf16"),
    ("vllm", "h100", 8, "fp8"),
    ("vllm", "mi355x", 4, "bf16"),
    ("vllm", "mi350x", 4, "fp8"),
    ("vllm", "950pr", 8, "fp8"),
]


@pytest.mark.parametrize("row", VALID)
def test_valid(row):
    assert rule(*row).refused == ""


REFUSED = [
    (("nim", "b200", 4, "bf16"), "each combination of GPU, count and precision is fixed"),
    (("nim", "h100", 4, "fp8"), "listed for h100: 8 x fp8, 8 x nvfp4"),
    (("nim", "h100", 8, "bf16"), "listed for h100: 8 x fp8, 8 x nvfp4"),
    (("nim", "b300", 8, "bf16"), "listed for b300: 4 x bf16, 2 x nvfp4"),
    (("nim", "gb200", 2, "nvfp4"), "listed for gb200: 4 x nvfp4"),
    (("nim", "mi355x", 4, "fp8"), "listed for mi355x: nothing"),
    (("nim", "rtx-pro-6000", 8, "nvfp4"), "no sparse-attention (DSA) backend"),
    (("nim", "rtx-pro-4500", 8, "nvfp4"), "no sparse-attention (DSA) backend"),
    (("nim", "a100", 8, "fp8"), "need Hopper (SM90) or newer"),
    (("nim", "l40s", 8, "fp8"), "need Hopper (SM90) or newer"),
    (("nim", "gh200", 8, "fp8"), "FlashAttention 3"),
    (("nim", "a10g", 8, "nvfp4"), "does not fit in GPU memory on one node"),
    (("nim", "gb10", 1, "nvfp4"), "does not fit in GPU memory on one node"),
    (("vllm", "h200", 8, "nvfp4"), "requires NVIDIA Blackwell"),
    (("vllm", "mi355x", 4, "nvfp4"), "requires NVIDIA Blackwell"),
    (("vllm", "h100", 4, "fp8"), "329 GB of weights, 320 GB of memory"),
    (("vllm", "h200", 4, "bf16"), "657 GB of weights, 564 GB of memory"),
    (("vllm", "h100", 8, "bf16"), "657 GB of weights, 640 GB of memory"),
    (("vllm", "h200", 8, "int4"), "no checkpoint in int4"),
    (("vllm", "a100", 8, "fp8"), "Hopper and newer"),
    (("vllm", "mi300x", 8, "fp8"), "gfx950 only"),
    (("vllm", "950pr", 4, "fp8"), "only what is listed is validated; listed for 950pr: 8 x fp8"),
    (("vllm", "950pr", 8, "bf16"), "not validated on Ascend"),
    (("tgi", "h200", 8, "fp8"), "no recipe for engine tgi"),
]


@pytest.mark.parametrize(("row", "reason"), REFUSED)
def test_refused_with_the_reason(row, reason):
    assert reason in rule(*row).refused


def test_hopper_has_no_fp8_kv_for_this_model():
    assert "Hopper does not support FP8 KV" in rule("vllm", "h200", 8, "fp8", kv_dtype="fp8").refused
    assert rule("vllm", "gb200", 4, "fp8", kv_dtype="fp8").refused == ""
    assert rule("vllm", "h200", 8, "fp8", kv_dtype="bf16").refused == ""


def test_nim_is_single_node():
    assert "single node" in rule("nim", "h100", 16, "bf16", nodes=2).refused


@pytest.mark.parametrize("missing", [("nim", None, 8, "fp8"), ("nim", "h100", None, "fp8"), ("nim", "h100", 8, None)])
def test_too_little_declared_refuses_nothing(missing):
    assert rule(*missing).refused == ""


def test_an_unknown_gpu_is_only_refused_by_a_closed_matrix():
    assert rule("nim", "x100", 8, "fp8").refused
    assert rule("vllm", "x100", 8, "fp8").refused == ""


def test_what_was_only_implied_says_so_and_needs_are_told():
    assert "implied" in rule("nim", "h200", 4, "fp8").warnings[0]
    assert rule("nim", "gb200", 4, "nvfp4").warnings == (
        "needs about 400 GB of free host memory",
        "needs --shm-size=64g",
    )
    assert rule("nim", "h100", 8, "fp8").warnings == ()


def test_contract_by_engine_frontend_and_row():
    nim = rule("nim", "gb200", 4, "nvfp4").contract
    assert (nim["storage"], nim["efforts"], nim["spec_method"]) == (False, ("low", "high", "max"), "mtp")
    assert nim["modalities"] == {"text", "image"}
    assert rule("vllm", "h200", 8, "fp8", frontend="rust").contract["modalities"] == {"text"}
    assert "video" in rule("vllm", "h200", 8, "fp8", frontend="python").contract["modalities"]
    assert "modalities" not in rule("vllm", "h200", 8, "fp8").contract
    assert rule("vllm", "950pr", 8, "fp8").contract["block_size"] == 512


def test_every_term_of_every_recipe_is_one_of_a_contract():
    for recipe in CATALOGUE.recipes.values():
        for support in recipe.engines.values():
            parts = [recipe.contract, support.contract, support.pd, *support.frontends.values()]
            parts += [row.contract for row in support.rows]
            assert {term for part in parts for term in part} <= set(TERMS)


def test_every_gpu_of_every_recipe_is_known():
    for recipe in CATALOGUE.recipes.values():
        for support in recipe.engines.values():
            named = {gpu for entry in (*support.rows, *support.unsupported) for gpu in entry.gpus}
            assert named <= set(CATALOGUE.gpus)


@pytest.mark.parametrize(
    ("hardware", "gpu"),
    [
        ("h100-fp8", "h100"),
        ("H200-NVL-bf16", "h200-nvl"),
        ("h200", "h200"),
        ("gb200-nvfp4-mtp", "gb200"),
        ("cpu", None),
    ],
)
def test_gpu_in_a_hardware_name(hardware, gpu):
    assert CATALOGUE.gpu_in(hardware) == gpu


def test_recipe_by_served_model():
    assert CATALOGUE.recipe_for("zai-org/GLM-5.3-Flash") is GLM
    assert CATALOGUE.recipe_for("nvidia/GLM-5.3-Flash-NVFP4") is GLM
    assert CATALOGUE.recipe_for("glm") is None
