"""`headrace sim`."""

from __future__ import annotations

from typing import Annotated

import typer


def sim(
    engine: Annotated[str, typer.Option(help="vllm, sglang or nim.", show_default=False)],
    port: Annotated[int, typer.Option(min=0, max=65535, show_default=False)],
) -> None:
    """Run a simulated engine until SIGTERM or Ctrl-C."""
