"""A configuration file that loads, to be bent by each test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import pytest

from gateway.config.known import Known
from gateway.config.loader import Loaded, Overrides, load
from gateway.config.problems import ConfigError

KNOWN = Known(engines=("vllm", "sglang", "nim"), routing=("latency", "p2c"))
SMALLEST = """
listen: {host: 127.0.0.1, port: 8080, admin_port: 9090}
auth: {mode: open}
pools:
  - name: a
    engine: vllm
    model: glm
    replicas: ["http://127.0.0.1:9101", "http://127.0.0.1:9102"]
models:
  - name: glm
    pools: [a]
"""


class File:
    """A configuration file and the ways to read it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "headrace.yaml"

    def write(self, text: str) -> None:
        self.path.write_text(dedent(text))

    def load(
        self, text: str | None = None, *, environ: Mapping[str, str] | None = None, overrides: Overrides | None = None
    ) -> Loaded:
        if text is not None:
            self.write(text)
        return load(self.path, KNOWN, overrides=overrides or Overrides(), environ=environ or {})

    def problems(self, text: str, *, environ: Mapping[str, str] | None = None) -> dict[str, str]:
        """What is said about `text`: path -> message and hint."""
        with pytest.raises(ConfigError) as caught:
            self.load(text, environ=environ)
        return {p.path: f"{p.message} ({p.hint})" if p.hint else p.message for p in caught.value.problems}


@pytest.fixture
def file(tmp_path: Path) -> File:
    return File(tmp_path)


@pytest.fixture
def smallest() -> str:
    return SMALLEST


Edit = Callable[[str, str], str]


@pytest.fixture
def edit() -> Edit:
    """The smallest configuration with one piece of text replaced."""

    def replace(old: str, new: str) -> str:
        assert old in SMALLEST
        return SMALLEST.replace(old, new, 1)

    return replace
