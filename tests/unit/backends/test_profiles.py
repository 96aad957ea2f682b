"""Hardware profiles: the data is complete, and scaled ones follow from the measured one."""

from __future__ import annotations

import itertools

import pytest

from backends.profiles import EngineName, interpolate, load_profile, profile_names

KNOTS = ((0.0, 1.0), (10.0, 2.0), (20.0, 6.0))
ENGINES: tuple[EngineName, ...] = ("vllm", "sglang", "nim")


@pytest.mark.parametrize(("x", "want"), [(0, 1.0), (5, 1.5), (10, 2.0), (15, 4.0), (30, 10.0), (-10, 0.0)])
def test_interpolate(x: float, want: float) -> None:
    assert interpolate(KNOTS, x) == pytest.approx(want)


def test_one_knot_is_a_constant() -> None:
    assert interpolate(((5.0, 3.0),), 100) == 3.0


@pytest.mark.parametrize("name", profile_names())
@pytest.mark.parametrize("engine", ENGINES)
def test_time_never_runs_back(name: str, engine: EngineName) -> None:
    profile = load_profile(name, engine)
    assert profile.name == name
    lengths = [0, 1, 100, 512, 2048, 8192, 16_384, 50_000, 100_000, 250_000]
    for less, more in itertools.pairwise(lengths):
        assert profile.prefill_s(less, more) >= 0
        assert profile.front_end_s(less) <= profile.front_end_s(more) or engine != "vllm"
        assert profile.intake_s(more) <= profile.front_end_s(more)
    assert profile.gpu_cache_tokens >= profile.max_model_len


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [("h100-fp8", 20e3, 35e3), ("h200-fp8", 15e3, 25e3), ("b300-nvfp4", 30e3, 60e3), ("gb200-mtp", 30e3, 60e3)],
)
def test_prefill_rates_lie_in_the_priors(name: str, low: float, high: float) -> None:
    profile = load_profile(name, "vllm")
    for tokens in (8192, 32_768, 100_000):
        steps = -(-tokens // profile.max_step_tokens)
        rate = tokens / (profile.prefill_s(0, tokens) + steps * profile.prefill_step_s)
        assert low <= rate <= high


def test_drafts_make_gb200_the_fastest_decoder() -> None:
    def per_token(name: str) -> float:
        profile = load_profile(name, "vllm")
        return profile.decode_s(8, 8 * 8192) / profile.tokens_per_step

    assert per_token("gb200-mtp") < per_token("b300-nvfp4") < per_token("h100-fp8")


def test_an_unknown_name_is_told_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match="h100-fp8"):
        load_profile("abacus", "vllm")
