from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer

from gateway.cli.app import build

from .conftest import Headrace


def _commands(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for name, command in getattr(node, "commands", {}).items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name)


COMMANDS = tuple(_commands(typer.main.get_command(build())))


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_has_an_example_of_the_command_itself(headrace: Headrace, command: tuple[str, ...]) -> None:
    result = headrace(*command, "--help")
    assert result.code == 0
    example = result.out.rpartition("Example:")[2]
    assert f"headrace {' '.join(command)}" in " ".join(example.split())


def test_no_command_prints_the_list(headrace: Headrace) -> None:
    result = headrace()
    assert result.code == 2
    for command in ("serve", "check", "schema", "sim", "demo", "keys", "pools", "top"):
        assert f"  {command} " in result.out + result.err


@pytest.mark.parametrize(
    "args", [("nope",), ("check", "--nope", "x"), ("pools", "nope"), ("serve", "x", "--port", "a")]
)
def test_what_cannot_be_parsed_is_bad_input(headrace: Headrace, args: tuple[str, ...]) -> None:
    result = headrace(*args)
    assert result.code == 2
    assert "Usage: " in result.err


def test_version(headrace: Headrace) -> None:
    assert headrace("--version").out.startswith("headrace ")


def test_help_imports_nothing_heavy() -> None:
    """Start-up time by its cause: what `--help` must not import."""
    code = (
        "import sys\n"
        "from gateway.cli.app import build\n"
        "import typer\n"
        "typer.main.get_command(build())\n"
        "print(*(m for m in ('aiohttp', 'pydantic', 'numpy', 'rich.table', 'yaml', 'asyncio') if m in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == []
