"""docs/configuration.md says what the tree says: every key, with its default, and a first example that loads."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_origin

from gateway.config.explain import node_of
from gateway.config.model import Config
from gateway.config.node import Node

from .conftest import File

DOCS = Path(__file__).parents[4] / "docs" / "configuration.md"
ROW = re.compile(r"^\| `([^`]+)` \| (?:`([^`]+)`|(\w+)) \|", re.MULTILINE)


def _keys(node: type[Node], path: str = "") -> Iterator[tuple[str, str]]:
    for name, field in node.model_fields.items():
        inner = node_of(field.annotation)
        if inner is None:
            yield path + name, "required" if field.is_required() else _spell(field.default)
        else:
            many = get_origin(field.annotation) is tuple
            yield from _keys(inner, f"{path}{name}{'[]' if many else ''}.")


def _spell(default: Any) -> str:
    if default is None:
        return "none"
    if isinstance(default, tuple | frozenset):
        return json.dumps(list(default))
    return default if isinstance(default, str) else json.dumps(default)


def test_every_key_is_described_with_its_default() -> None:
    rows = {key: code or word for key, code, word in ROW.findall(DOCS.read_text())}
    assert rows == dict(_keys(Config))


def test_the_example_loads(file: File) -> None:
    example = DOCS.read_text().partition("```yaml\n")[2].partition("```")[0]
    key = "file:/run/secrets/b300-key"
    assert key in example
    (file.path.parent / "key").write_text("k")
    loaded = file.load(example.replace(key, "file:key"), environ={"HEADRACE_ADMIN_TOKEN": "t"})
    assert loaded.warnings == ()
