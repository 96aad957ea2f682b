from __future__ import annotations

import inspect

import pytest

from backends.simulator.options import SimOptions
from gateway.cli.sim import sim

from .conftest import Headrace


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--profile", "h999"), "unknown profile 'h999'; known: "),
        (("--fault", "explode"), "unknown fault 'explode'; known: "),
        (("--fault", "refuse", "--fault", "reset_after=x"), "not a number in fault 'reset_after=x'"),
    ],
)
def test_bad_input(headrace: Headrace, args: tuple[str, ...], message: str) -> None:
    result = headrace("sim", "--engine", "vllm", "--port", "0", *args)
    assert result.code == 2
    assert result.err.startswith(f"headrace: {message}")


@pytest.mark.parametrize("args", [("--engine", "tgi", "--port", "1"), ("--engine", "vllm", "--port", "65536")])
def test_out_of_range(headrace: Headrace, args: tuple[str, ...]) -> None:
    result = headrace("sim", *args)
    assert result.code == 2
    assert "Invalid value" in result.err


def test_defaults_are_those_of_the_simulator() -> None:
    given = {name: parameter.default for name, parameter in inspect.signature(sim).parameters.items()}
    options = SimOptions(engine="vllm")
    for name in ("model", "profile", "kv_events", "fs_root", "time_scale", "seed"):
        assert given[name] == getattr(options, name)
    assert given["tick_ms"] / 1000 == options.tick_s
