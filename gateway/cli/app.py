"""The command tree. Exit codes: 0 ok, 1 failed, 2 bad input."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from gateway.cli import check, demo, keys, pools, probe, replay, serve, sim, top
from gateway.cli.output import UserError
from gateway.config.problems import ConfigError


def run(args: list[str] | None = None) -> None:
    """Run one command and exit. Faults of the user are one line each on stderr, never a stack trace."""
    try:
        build()(args)
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


def build() -> typer.Typer:
    """All commands."""
    app = group("One endpoint in front of self-hosted SGLang and vLLM pools.")
    app.callback()(root)
    app.command(epilog="Example: headrace serve headrace.yaml")(serve.serve)
    app.command(epilog="Example: headrace check headrace.yaml")(check.check)
    app.command(epilog="Example: headrace schema > headrace.schema.json")(check.schema)
    app.command(epilog="Example: headrace demo --port 8080")(demo.demo)
    app.command(epilog="Example: headrace sim --engine vllm --port 9101 --model glm --profile h100-fp8")(sim.sim)
    app.command(epilog="Example: headrace replay trace.jsonl headrace.yaml --policy latency --policy p2c")(
        replay.replay
    )
    app.command(epilog="Example: HEADRACE_ADMIN_TOKEN=... headrace top --admin http://127.0.0.1:9090")(top.top)
    app.add_typer(key_commands(), name="keys")
    app.add_typer(pool_commands(), name="pools")
    return app


def key_commands() -> typer.Typer:
    """`headrace keys ...`."""
    app = group("API keys of tenants. The configuration holds their hashes only.")
    app.command(epilog="Example: headrace keys create --tenant search")(keys.create)
    app.command("list", epilog="Example: headrace keys list --config headrace.yaml")(keys.list_keys)
    app.command(epilog="Example: headrace keys revoke --tenant search --id k-1f0c --config headrace.yaml")(keys.revoke)
    app.command(epilog="Example: headrace keys rotate --tenant search --id k-1f0c --config headrace.yaml")(keys.rotate)
    return app


def pool_commands() -> typer.Typer:
    """`headrace pools ...`."""
    app = group("Pools: what a running gateway knows of them, and what they really can do.")
    app.command("list", epilog="Example: HEADRACE_ADMIN_TOKEN=... headrace pools list")(pools.list_pools)
    app.command(epilog="Example: headrace pools show h100 --admin http://127.0.0.1:9090")(pools.show)
    app.command(epilog="Example: headrace pools probe h100 --config headrace.yaml")(probe.probe)
    return app


def _version(asked: bool) -> None:
    if asked:
        from importlib.metadata import version

        typer.echo(f"headrace {version('headrace')}")
        raise typer.Exit


def root(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True, help="Print it.")] = False,
) -> None:
    """One endpoint in front of self-hosted SGLang and vLLM pools."""
