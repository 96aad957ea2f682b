"""What is wrong with a configuration, in words an operator can act on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PathParts = tuple[str | int, ...]


def spell(parts: PathParts) -> str:
    """`("pools", 0, "replicas", 1)` as `pools[0].replicas[1]`."""
    text = ""
    for part in parts:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault. `line` counts from 1 and is 0 when unknown; a warning does not keep a configuration from use."""

    at: PathParts
    message: str
    hint: str = ""
    line: int = 0
    warning: bool = False

    @property
    def path(self) -> str:
        """Where in the tree, e.g. `pools[0].replicas[1]`; empty for the file as a whole."""
        return spell(self.at)

    def __str__(self) -> str:
        line = f"line {self.line}: " if self.line else ""
        where = f"{self.path}: " if self.at else ""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{line}{where}{self.message}{hint}"


class ConfigError(Exception):
    """The configuration cannot be used. `problems` holds every fault found, not only the first.

    `files` are those that were read or missed: a change of one of them may mend it.
    """

    def __init__(self, source: str, problems: tuple[Problem, ...], files: frozenset[Path] = frozenset()) -> None:
        super().__init__(source, problems)
        self.source = source
        self.problems = problems
        self.files = files

    def __str__(self) -> str:
        return "\n".join(f"{self.source}: {problem}" for problem in self.problems)


def nearest(name: str, known: Iterable[str]) -> str:
    """A hint naming the known word closest to `name`, or all of them when they are few and none is close."""
    import difflib  # here: most configurations are right

    words = sorted(set(known))
    close = difflib.get_close_matches(name, words, n=1, cutoff=0.6)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known: {', '.join(words)}" if 0 < len(words) <= 12 else ""
