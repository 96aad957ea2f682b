"""`headrace replay`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.output import ConfigArgument, JsonOption, UserError, console, print_json

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.replay import Options, Study
    from gateway.replay.study import Progress


def replay(
    trace: Annotated[Path, typer.Argument(metavar="TRACE", show_default=False, help="Recorded exchanges.")],
    config: ConfigArgument,
    policy: Annotated[
        list[str] | None, typer.Option(help="Routing policy to try, repeatable.", show_default=False)
    ] = None,
    model: Annotated[str, typer.Option(help="Model whose pools are used.", show_default="the first")] = "",
    rate: Annotated[float, typer.Option(help="How many times faster than recorded.")] = 1.0,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only so many exchanges from the start.", show_default=False)
    ] = None,
    slo_ttft_s: Annotated[float, typer.Option(help="Time to first token that counts as missed.")] = 2.0,
    seed: Annotated[int, typer.Option(help="Same seed, same result.")] = 1,
    html: Annotated[Path | None, typer.Option(help="Write a report with plots here.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Send recorded traffic through routing policies in virtual time, and compare them. Reads traces of Headrace,
    Mooncake (JSON lines) and Azure (CSV), also compressed.
    """
    from gateway.replay import Options, render_html, render_table

    options = Options(model=model, rate=rate, limit=limit, slo_ttft_s=slo_ttft_s, seed=seed)
    study = _study(trace, config, tuple(policy or ()), options)
    if html is not None:
        try:
            html.write_text(render_html(study))
        except OSError as error:
            raise UserError(f"--html: cannot write {html}: {error.strerror}") from None
    if as_json:
        print_json(study.as_dict())
        return
    console().print(render_table(study))


def _study(trace: Path, config: Path, policies: tuple[str, ...], options: Options) -> Study:
    from gateway.config.known import installed
    from gateway.config.loader import load
    from gateway.replay import ReplayError, TraceError, run

    tree = load(config, installed()).config
    try:
        with _progress() as progress:
            return run(trace, tree, policies, options, progress)
    except (ReplayError, TraceError) as error:
        raise UserError(str(error), code=2) from None
    except OSError as error:
        raise UserError(f"cannot read {trace}: {error.strerror or error}", code=2) from None


@contextmanager
def _progress() -> Iterator[Progress]:
    """A bar per policy on stderr, when that is a terminal."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID

    screen = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Bars(console=screen, transient=True, disable=not screen.is_terminal) as bars:

        def advanced(policy: str, sent: int, total: int) -> None:
            if policy not in tasks:
                tasks[policy] = bars.add_task(policy, total=total)
            bars.update(tasks[policy], completed=sent)

        yield advanced
