"""What commands share: parameters, errors, and printing as a table or as JSON."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

_PIPE_WIDTH = 240

ConfigArgument = Annotated[
    Path, typer.Argument(metavar="CONFIG", envvar="HEADRACE_CONFIG", show_default=False, help="Configuration file.")
]
ConfigOption = Annotated[
    Path, typer.Option("--config", envvar="HEADRACE_CONFIG", metavar="CONFIG", help="Configuration file.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
PortOption = Annotated[int | None, typer.Option(min=0, max=65535, show_default=False)]


class UserError(Exception):
    """Something the user can put right. The message is one line; `code` is the exit status."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def console() -> Console:
    """Where tables of rich go. Into a pipe they are as wide as they need to be, for grep rather than for eyes."""
    from rich.console import Console

    plain = Console()
    return plain if plain.is_terminal else Console(width=_PIPE_WIDTH)


def print_json(value: Any) -> None:
    """Print one JSON document."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))


def print_table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print aligned columns, numbers to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(line[column]) for line in (list(head), *cells)) for column in range(len(head))]
    for line in (list(head), *cells):
        fitted = (_fit(text, width) for text, width in zip(line, widths, strict=True))
        typer.echo("  ".join(fitted).rstrip())


def _fit(text: str, width: int) -> str:
    return text.rjust(width) if text.replace(".", "", 1).isdigit() else text.ljust(width)
