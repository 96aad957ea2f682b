"""`headrace check` and `headrace schema`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from gateway.cli.output import ConfigArgument, JsonOption, print_json
from gateway.config.problems import ConfigError, Problem

if TYPE_CHECKING:
    from gateway.config.model import Config


def check(config: ConfigArgument, as_json: JsonOption = False) -> None:
    """Check a configuration: every problem at once, with its line and path. Exit status 0, or 2 when it is unusable."""
    from gateway.config.known import installed
    from gateway.config.loader import load

    try:
        loaded = load(config, installed())
    except ConfigError as error:
        if as_json:
            print_json({"ok": False, "problems": [_plain(problem) for problem in error.problems]})
        else:
            typer.echo(str(error))  # what is wrong is what this command prints: stdout
        raise typer.Exit(2) from None
    if as_json:
        print_json({"ok": True, "problems": [_plain(problem) for problem in loaded.warnings]})
        return
    for warning in loaded.warnings:
        typer.echo(f"{config.name}: warning: {warning}", err=True)
    typer.echo(f"{config.name}: ok, {_summary(loaded.config)}")


def schema() -> None:
    """Print the JSON Schema of the configuration, for editors and other tools."""
    from gateway.config.model import Config

    tree = Config.model_json_schema()
    print_json({"$schema": "https://json-schema.org/draft/2020-12/schema", **tree, "title": "Headrace configuration"})


def _summary(tree: Config) -> str:
    replicas = sum(len(pool.replicas) for pool in tree.pools)
    counts = {"pool": len(tree.pools), "replica": replicas, "model": len(tree.models), "tenant": len(tree.tenants)}
    return ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts.items())


def _plain(problem: Problem) -> dict[str, object]:
    return {
        "path": problem.path,
        "line": problem.line,
        "message": problem.message,
        "hint": problem.hint,
        "warning": problem.warning,
    }
