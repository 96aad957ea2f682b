"""`headrace sim`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from gateway.cli.output import UserError


def sim(
    engine: Annotated[Literal["vllm", "sglang", "nim"], typer.Option(help="Whose wire format.", show_default=False)],
    port: Annotated[int, typer.Option(min=0, max=65535, help="0: any free one.", show_default=False)],
    model: Annotated[str, typer.Option(help="Served name.")] = "sim",
    profile: Annotated[str, typer.Option(help="How fast it is, e.g. h100-fp8 or b300-nvfp4.")] = "instant",
    kv_events: Annotated[
        int | None,
        typer.Option(min=0, max=65534, help="Publish KV events here, replay on the next port.", show_default=False),
    ] = None,
    fs_root: Annotated[
        Path | None, typer.Option(help="Folder of the file tier; without, it is in memory.", show_default=False)
    ] = None,
    time_scale: Annotated[float, typer.Option(min=0.001, help="Simulated seconds per second.")] = 1.0,
    fault: Annotated[
        list[str] | None,
        typer.Option(metavar="SPEC", help="name[=value][:probability], repeatable.", show_default=False),
    ] = None,
    seed: Annotated[int, typer.Option(help="Same seed, same run.")] = 0,
    tick_ms: Annotated[float, typer.Option(min=0.0, help="Tokens within one tick are sent together.")] = 1.0,
) -> None:
    """Run a simulated engine on loopback until SIGTERM or Ctrl-C."""
    from backends.profiles import load_profile
    from backends.simulator.faults import parse_faults
    from backends.simulator.options import SimOptions
    from backends.simulator.server import run

    try:
        load_profile(profile, engine)
        parse_faults(faults := ",".join(fault or ()))
    except (KeyError, ValueError) as error:
        raise UserError(str(error.args[0]), code=2) from None
    options = SimOptions(
        engine=engine,
        port=port,
        model=model,
        profile=profile,
        kv_events=kv_events,
        fs_root=fs_root,
        time_scale=time_scale,
        fault=faults,
        seed=seed,
        tick_s=tick_ms / 1000,
    )
    try:
        run(options)
    except OSError as error:
        raise UserError(f"cannot listen on port {port}: {error.strerror}") from None
