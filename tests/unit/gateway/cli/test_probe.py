from __future__ import annotations

import json
from pathlib import Path

from .conftest import Headrace


def test_an_engine_that_does_not_answer(headrace: Headrace, config: Path) -> None:
    config.write_text(config.read_text().replace("127.0.0.1:9101", "127.0.0.1:1"))
    result = headrace("pools", "probe", "a", "--config", config, "--no-golden", "--json")
    assert result.code == 1
    report = json.loads(result.out)
    assert (report["pool"], report["engine"], report["complete"]) == ("a", "vllm", False)
    assert report["terms"]["model"] == {"value": "glm", "source": "default", "evidence": "engine kind vllm"}
    assert headrace("pools", "probe", "a", "--config", config, "--no-golden").out.startswith("a (vllm)")


def test_what_is_not_there(headrace: Headrace, config: Path) -> None:
    result = headrace("pools", "probe", "b", "--config", config)
    assert (result.code, result.err) == (1, "headrace: headrace.yaml: there is no pool 'b': known: a\n")
    result = headrace("pools", "probe", "a", "--replica", "2", "--config", config)
    assert (result.code, result.err) == (2, "headrace: --replica: pool 'a' has 2\n")
