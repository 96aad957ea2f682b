"""Large libraries, imported without what a gateway does not use of them.

Each function changes something only for a process that has not imported the library yet.
"""

from __future__ import annotations

import ssl
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


def import_structlog() -> None:
    """structlog without what prints in colour: the log is JSON. Saves 3 MB and a tenth of the start."""
    with _absent("rich", "better_exceptions"):
        import structlog  # noqa: F401


def import_aiohttp() -> None:
    """aiohttp without the authorities that this machine trusts, which it would read twice: 3 MB and 60 ms.

    They are read by the first TLS connection of a client, which then takes so much longer.
    """
    if "aiohttp" in sys.modules:
        return
    # The names are looked up on the class; that of `set_default_verify_paths` lies on its base, so it is taken off.
    load = ssl.SSLContext.load_default_certs
    ssl.SSLContext.load_default_certs = _put_off  # type: ignore[method-assign, assignment]
    ssl.SSLContext.set_default_verify_paths = _put_off  # type: ignore[method-assign, assignment]
    try:
        import aiohttp  # noqa: F401
    finally:
        ssl.SSLContext.load_default_certs = load  # type: ignore[method-assign]
        del ssl.SSLContext.set_default_verify_paths


def import_requests() -> None:
    """requests without what guesses the encoding of text without one: 3 MB, for the span exporter, which reads none."""
    with _absent("chardet", "charset_normalizer"):
        warnings.filterwarnings("ignore", "Unable to find acceptable character detection dependency")
        import requests  # noqa: F401


class _Late(ssl.SSLContext):
    """A client context that becomes an ordinary one, with the authorities, when it is first used."""

    def wrap_bio(self, *args: Any, **kwargs: Any) -> ssl.SSLObject:
        """See `ssl.SSLContext`; for event loops."""
        self._become_ready()
        return self.wrap_bio(*args, **kwargs)

    def wrap_socket(self, *args: Any, **kwargs: Any) -> ssl.SSLSocket:
        """See `ssl.SSLContext`."""
        self._become_ready()
        return self.wrap_socket(*args, **kwargs)

    def _become_ready(self) -> None:
        self.__class__ = ssl.SSLContext  # type: ignore[assignment]
        self.load_default_certs()


def _put_off(context: ssl.SSLContext, *_: object) -> None:
    context.__class__ = _Late


@contextmanager
def _absent(*names: str) -> Iterator[None]:
    """Packages that are found missing by imports inside, as if they were not installed."""
    hidden = [name for name in names if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type] # None stands for a module that is not there
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]
