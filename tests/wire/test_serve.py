"""`headrace serve` as a process: what it says when it cannot run."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

CONFIG = """
listen: {drain_s: 0, admin_port: 0}
auth: {mode: open}
pools: [{name: a, engine: vllm, model: m, replicas: ["http://127.0.0.1:1"]}]
models: [{name: m, pools: [a]}]
"""


def serve(path: Path, *args: str) -> subprocess.CompletedProcess[str]:
    argv = (sys.executable, "-m", "gateway.cli", "serve", str(path), *args)
    return subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "headrace.yaml"
    path.write_text(CONFIG)
    return path


def test_a_taken_port(path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        done = serve(path, "--port", str(taken.getsockname()[1]))
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("headrace: cannot listen: ")
    assert last.endswith("address already in use")
    assert "Traceback" not in done.stderr


def test_a_bad_configuration(path: Path) -> None:
    path.write_text(CONFIG.replace("vllm", "vlm"))
    done = serve(path)
    assert done.returncode == 2
    assert done.stderr == "headrace.yaml: line 4: pools[0].engine: unknown engine 'vlm' (did you mean 'vllm'?)\n"
    assert done.stdout == ""
