"""Runs the command line in this process and keeps what it printed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from gateway.cli.app import run

CONFIG = """
auth: {mode: open}
tenants:
  - name: search
    keys:
      - {id: k-1, sha256: "%s"}
pools:
  - {name: a, engine: vllm, model: glm, replicas: ["http://127.0.0.1:9101", "http://127.0.0.1:9102"]}
models: [{name: glm, pools: [a]}]
""" % ("ab" * 32)


@dataclass(frozen=True)
class Result:
    """Exit status and both outputs."""

    code: int
    out: str
    err: str


Headrace = Callable[..., Result]


@pytest.fixture
def headrace(capsys: pytest.CaptureFixture[str]) -> Headrace:
    def call(*args: str | Path) -> Result:
        with pytest.raises(SystemExit) as ended:
            run([str(arg) for arg in args])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return Result(ended.value.code or 0, out, err)  # type: ignore[arg-type]

    return call


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "headrace.yaml"
    path.write_text(CONFIG)
    return path
