"""The command tree. Exit codes: 0 ok, 1 failed, 2 bad input."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Annotated, NamedTuple

import typer

from gateway.cli.output import UserError
from gateway.config.problems import ConfigError


class _Command(NamedTuple):
    """Where a command is and how it is shown."""

    where: str  # module:function below gateway.cli
    example: str


_TOP = {
    "serve": _Command("serve:serve", "headrace serve headrace.yaml"),
    "check": _Command("check:check", "headrace check headrace.yaml"),
    "schema": _Command("check:schema", "headrace schema > headrace.schema.json"),
    "demo": _Command("demo:demo", "headrace demo --port 8080"),
    "sim": _Command("sim:sim", "headrace sim --engine vllm --port 9101 --model glm --profile h100-fp8"),
    "replay": _Command("replay:replay", "headrace replay trace.jsonl headrace.yaml --policy latency --policy p2c"),
    "top": _Command("top:top", "HEADRACE_ADMIN_TOKEN=... headrace top --admin http://127.0.0.1:9090"),
}
_KEYS = {
    "create": _Command("keys:create", "headrace keys create --tenant search"),
    "list": _Command("keys:list_keys", "headrace keys list --config headrace.yaml"),
    "revoke": _Command("keys:revoke", "headrace keys revoke --tenant search --id k-1f0c --config headrace.yaml"),
    "rotate": _Command("keys:rotate", "headrace keys rotate --tenant search --id k-1f0c --config headrace.yaml"),
}
_POOLS = {
    "list": _Command("pools:list_pools", "HEADRACE_ADMIN_TOKEN=... headrace pools list"),
    "show": _Command("pools:show", "headrace pools show h100 --admin http://127.0.0.1:9090"),
    "probe": _Command("probe:probe", "headrace pools probe h100 --config headrace.yaml"),
}
_GROUPS = {
    "keys": ("API keys of tenants. The configuration holds their hashes only.", _KEYS),
    "pools": ("Pools: what a running gateway knows of them, and what they really can do.", _POOLS),
}


def run(args: list[str] | None = None) -> None:
    """Run one command and exit. Faults of the user are one line each on stderr, never a stack trace."""
    args = sys.argv[1:] if args is None else args
    try:
        build(args[0] if args else "")(args)
    except ConfigError as error:
        typer.echo(str(error), err=True)
        sys.exit(2)
    except UserError as error:
        typer.echo(f"headrace: {error}", err=True)
        sys.exit(error.code)


def group(help_text: str) -> typer.Typer:
    """A level of the tree. Plain text help: it starts three times as fast as the decorated one."""
    return typer.Typer(
        help=help_text,
        no_args_is_help=True,
        add_completion=False,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )


def build(wanted: str = "") -> typer.Typer:
    """The tree with `wanted` alone, so that a gateway starts without the code of other commands; else with all."""
    app = group("One endpoint in front of self-hosted SGLang and vLLM pools.")
    app.callback()(root)
    known = wanted in _TOP or wanted in _GROUPS
    _add(app, {name: command for name, command in _TOP.items() if not known or name == wanted})
    for name, (help_text, commands) in _GROUPS.items():
        if not known or name == wanted:
            level = group(help_text)
            _add(level, commands)
            app.add_typer(level, name=name)
    return app


def _add(level: typer.Typer, commands: dict[str, _Command]) -> None:
    for name, (where, example) in commands.items():
        module, _, function = where.partition(":")
        level.command(name, epilog=f"Example: {example}")(getattr(import_module(f"gateway.cli.{module}"), function))


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """One endpoint in front of self-hosted SGLang and vLLM pools."""
