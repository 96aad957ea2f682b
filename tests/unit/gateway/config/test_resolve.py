from __future__ import annotations

import pytest

from gateway.config.model import Model
from gateway.config.resolve import ModelTable

TABLE = ModelTable(
    (
        Model(name="glm", aliases=("gpt-4o", "claude-*"), pools=("a",)),
        Model(name="small", aliases=("claude-haiku-*", "*"), pools=("b",)),
        Model(name="claude-3", pools=("a",)),
    )
)


@pytest.mark.parametrize(
    ("name", "model"),
    [
        ("glm", "glm"),
        ("gpt-4o", "glm"),
        ("gpt-4o-mini", "small"),
        ("claude-opus-4", "glm"),
        ("claude-haiku-4", "small"),  # the longest wildcard wins, whatever the order
        ("claude-3", "claude-3"),  # an exact name before any wildcard
        ("claude-", "glm"),
        ("claude-*", "glm"),
        ("", "small"),
    ],
)
def test_resolve(name: str, model: str) -> None:
    found = TABLE.resolve(name)
    assert found is not None
    assert found.name == model


def test_unknown() -> None:
    assert ModelTable((Model(name="glm", pools=("a",)),)).resolve("GLM") is None


def test_names_are_what_can_be_listed() -> None:
    assert list(TABLE.names()) == ["glm", "gpt-4o", "small", "claude-3"]
