"""The command `headrace`. Commands import what they need when they run: `--help` stays fast."""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script."""
    from gateway.cli.app import run

    run()
