"""YAML text as data plus positions: which line a path of the tree stands on."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from gateway.config.problems import PathParts, Problem

_Loader: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SyntaxProblem(Exception):  # noqa: N818 - carries a Problem
    """The text is no YAML mapping."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


@dataclass(frozen=True, slots=True)
class Document:
    """Plain data (dicts, lists, scalars), the syntax tree it came from, and keys that were given twice."""

    data: dict[str, Any]
    root: yaml.MappingNode
    repeated: tuple[Problem, ...]

    def line(self, parts: PathParts) -> int:
        """Line of the deepest node of `parts` that exists, counted from 1."""
        node: yaml.Node = self.root
        line = 0
        for part in parts:
            step = _step(node, part)
            if step is None:
                break
            key, node = step
            line = key.start_mark.line + 1
        return line


def parse(text: str) -> Document:
    """Read YAML. Raises SyntaxProblem for bad syntax and for anything but a mapping at the top."""
    try:
        loader = _Loader(text)
        try:
            root = loader.get_single_node()
            if not isinstance(root, yaml.MappingNode):
                raise SyntaxProblem(Problem((), "the file must hold a mapping with `pools:` and `models:`"))
            repeated = tuple(_repeated(root, (), set()))  # before construction, which merges `<<` into the nodes
            return Document(loader.construct_document(root), root, repeated)
        finally:
            loader.dispose()
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SyntaxProblem(_syntax(error)) from None


def _repeated(node: yaml.Node, at: PathParts, seen: set[int]) -> Iterator[Problem]:
    """Keys given twice in one mapping: YAML keeps the last one silently, which is never what was meant."""
    if id(node) in seen:  # an anchor used again
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        first: dict[str, int] = {}
        for key, value in node.value:
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in first:
                yield Problem((*at, name), f"given twice, first on line {first[name]}", line=line)
            first.setdefault(name, line)
            yield from _repeated(value, (*at, name), seen)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _repeated(value, (*at, index), seen)


def _step(node: yaml.Node, part: str | int) -> tuple[yaml.Node, yaml.Node] | None:
    if isinstance(node, yaml.MappingNode):
        return next(((key, value) for key, value in node.value if key.value == part), None)
    if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
        return node.value[part], node.value[part]
    return None


def _syntax(error: Exception) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return Problem((), f"not YAML: {error.problem or error.context}", line=error.problem_mark.line + 1)
    return Problem((), f"not YAML: {str(error).splitlines()[0]}")
