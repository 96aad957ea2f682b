from __future__ import annotations

from pathlib import Path

from .conftest import Headrace


def test_one_process_only(headrace: Headrace, config: Path) -> None:
    result = headrace("serve", config, "--workers", "2")
    assert result.code == 2
    assert result.err == "headrace: --workers: this version runs everything in one process; use 1\n"


def test_a_bad_configuration_does_not_start(headrace: Headrace, config: Path) -> None:
    result = headrace("serve", config, "--host", "0.0.0.0")
    assert result.code == 2
    assert result.err.startswith("headrace.yaml: line 2: auth.mode: `open` is refused while listen.host is '0.0.0.0'")
