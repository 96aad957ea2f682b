from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Headrace

LINE = {"timestamp": 0, "input_length": 1000, "output_length": 8, "hash_ids": [1, 2]}


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps({**LINE, "timestamp": i * 100}) + "\n" for i in range(20)))
    return path


def test_policies_are_compared(headrace: Headrace, trace: Path, config: Path, tmp_path: Path) -> None:
    args = ("replay", trace, config, "--policy", "round_robin", "--policy", "p2c", "--limit", "10")
    result = headrace(*args, "--json", "--html", tmp_path / "report.html")
    assert result.code == 0
    study = json.loads(result.out)
    assert study["exchanges"] == 10
    assert [entry["policy"] for entry in study["results"]] == ["round_robin", "p2c"]
    assert "<html" in (tmp_path / "report.html").read_text()
    table = headrace(*args).out
    assert "round_robin" in table
    assert headrace(*args, "--json").out == result.out  # deterministic


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--policy", "nope"), "unknown policy 'nope'; known: "),
        (("--model", "nope"), "no model 'nope' in the configuration"),
        (("--rate", "0"), "rate must be above 0"),
        (("--html", "/nowhere/report.html"), "--html: cannot write /nowhere/report.html: No such file or directory"),
    ],
)
def test_bad_input(headrace: Headrace, trace: Path, config: Path, args: tuple[str, ...], message: str) -> None:
    result = headrace("replay", trace, config, *args)
    assert result.code == (1 if "--html" in args else 2)
    assert result.err.startswith(f"headrace: {message}")


def test_traces_that_are_none(headrace: Headrace, trace: Path, config: Path) -> None:
    trace.write_text("not a trace\n")
    assert headrace("replay", trace, config).code == 2
    trace.unlink()
    result = headrace("replay", trace, config)
    assert (result.code, result.err) == (2, f"headrace: cannot read {trace}: No such file or directory\n")
