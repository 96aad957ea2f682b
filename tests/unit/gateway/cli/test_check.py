from __future__ import annotations

import json
from pathlib import Path

import pytest

from .conftest import Headrace


def test_a_good_file(headrace: Headrace, config: Path) -> None:
    result = headrace("check", config)
    assert (result.code, result.out, result.err) == (
        0,
        "headrace.yaml: ok, 1 pool, 2 replicas, 1 model, 1 tenant\n",
        "",
    )


def test_a_bad_file(headrace: Headrace, config: Path) -> None:
    config.write_text(config.read_text().replace("vllm", "vlm").replace("9102", "9101").replace("auth:", "auht:"))
    result = headrace("check", config)
    assert result.code == 2
    assert result.out.splitlines() == [
        "headrace.yaml: line 2: auht: unknown key (did you mean 'auth'?)",
        "headrace.yaml: line 8: pools[0].engine: unknown engine 'vlm' (did you mean 'vllm'?)",
        "headrace.yaml: line 8: pools[0].replicas[1]: replica 'http://127.0.0.1:9101' is taken by pools[0].replicas[0]",
    ]


def test_json(headrace: Headrace, config: Path) -> None:
    assert json.loads(headrace("check", config, "--json").out) == {"ok": True, "problems": []}
    config.write_text(config.read_text().replace("vllm", "vlm"))
    result = headrace("check", config, "--json")
    assert result.code == 2
    assert json.loads(result.out)["problems"] == [
        {
            "path": "pools[0].engine",
            "line": 8,
            "message": "unknown engine 'vlm'",
            "hint": "did you mean 'vllm'?",
            "warning": False,
        }
    ]


def test_warnings_go_to_stderr(headrace: Headrace, config: Path) -> None:
    spare = "pools:\n  - {name: b, engine: vllm, model: glm, replicas: ['http://127.0.0.1:9103']}"
    config.write_text(config.read_text().replace("pools:", spare, 1))
    result = headrace("check", config)
    assert result.code == 0
    assert result.err == "headrace.yaml: warning: line 8: pools[0]: no model uses pool 'b'\n"
    assert "ok, 2 pools" in result.out


def test_a_missing_file(headrace: Headrace, tmp_path: Path) -> None:
    result = headrace("check", tmp_path / "none.yaml")
    assert (result.code, result.out) == (2, "none.yaml: cannot read the file: No such file or directory\n")


def test_the_file_may_come_from_the_environment(
    headrace: Headrace, config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_CONFIG", str(config))
    assert headrace("check").code == 0


def test_schema(headrace: Headrace) -> None:
    result = headrace("schema")
    schema = json.loads(result.out)
    assert result.code == 0
    assert schema["$schema"].startswith("https://json-schema.org/")
    assert schema["additionalProperties"] is False
    assert schema["required"] == ["pools", "models"]
