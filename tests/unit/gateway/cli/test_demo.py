from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from gateway.cli.demo import Engine, configuration, names
from gateway.config.known import installed
from gateway.config.loader import load

ENGINES: Sequence[Engine] = (
    Engine("h100", "vllm", "h100-fp8", "demo", 9101, (), "/health", 1.0),
    Engine("b300", "sglang", "b300-nvfp4", "demo", 9102, (), "/ready", 1.0),
)


def test_the_configuration_of_the_demo_is_one_that_loads(tmp_path: Path) -> None:
    path = tmp_path / "headrace.yaml"
    path.write_text(configuration(ENGINES, 8080, 9090))
    loaded = load(path, installed(), environ={})
    assert loaded.warnings == ()
    assert loaded.config.auth.mode == "open"
    assert [pool.replicas for pool in loaded.config.pools] == [("http://127.0.0.1:9101",), ("http://127.0.0.1:9102",)]
    assert [(model.name, model.pools) for model in loaded.config.models] == [
        ("demo", ("h100", "b300")),
        ("demo-h100", ("h100",)),
        ("demo-b300", ("b300",)),
    ]
    assert names(ENGINES) == [model.name for model in loaded.config.models]
