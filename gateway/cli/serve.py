"""`headrace serve`."""

from __future__ import annotations

import errno
import gc
from typing import Annotated

import typer

from gateway.cli.output import ConfigArgument, PortOption, UserError

_NO_SOCKET = (errno.EADDRINUSE, errno.EADDRNOTAVAIL, errno.EACCES)


def serve(
    config: ConfigArgument,
    workers: Annotated[int, typer.Option(min=1, help="Processes that take traffic.")] = 1,
    host: Annotated[str | None, typer.Option(show_default=False, help="Instead of listen.host.")] = None,
    port: PortOption = None,
    admin_port: PortOption = None,
) -> None:
    """Run the gateway until SIGTERM or Ctrl-C. SIGHUP and changes of the file load the configuration again."""
    if workers != 1:
        raise UserError("--workers: this version runs everything in one process; use 1", code=2)
    gc.disable()  # imports leave no garbage, and looking for it is a tenth of the start; the server turns it on
    from gateway import lean

    lean.import_structlog()
    lean.import_aiohttp()
    from gateway.config.loader import Overrides
    from gateway.server import serve as run

    try:
        run(config, Overrides(host=host, port=port, admin_port=admin_port))
    except OSError as error:
        if error.errno not in _NO_SOCKET:
            raise
        raise UserError(f"cannot listen: {error.strerror}") from None
