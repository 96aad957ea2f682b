from __future__ import annotations

from .conftest import Edit, File


def test_other_problems_are_told_beside_a_faulty_field(file: File, edit: Edit) -> None:
    text = edit("pools: [a]", "pools: [a, b]")
    for old, new, path in (
        ("name: a\n", "\n", "pools[0].name"),  # required: a stand-in
        ("engine: vllm", "engine: 7", "pools[0].engine"),
        ("model: glm", "model: glm\n    weight: -1", "pools[0].weight"),  # optional: the default
        ('"http://127.0.0.1:9102"', "[]", "pools[0].replicas[1]"),  # an entry keeps its place
        ("auth:", "auht:", "auht"),
        ("auth:", "tenants: 3\nauth:", "tenants"),
        ("auth:", "tenants: [3, {nam: t}]\nauth:", "tenants[1].nam"),
        ("auth:", "reasoning: {seal_keys: [a, b]}\nauth:", "reasoning.seal_keys[1]"),
    ):
        found = set(file.problems(text.replace(old, new, 1)))
        assert path in found
        assert "models[0].pools[1]" in found


def test_nothing_is_said_about_a_stand_in(file: File, edit: Edit) -> None:
    assert set(file.problems(edit("pools: [a]", ""))) == {"models[0].pools"}
    assert set(file.problems(edit("engine: vllm", ""))) == {"pools[0].engine"}


def test_references_into_a_lost_section_are_not_reported(file: File, edit: Edit) -> None:
    assert set(file.problems(edit("pools:\n  -", "pool:\n  -"))) == {"pool", "pools"}
