"""The real clock."""

from __future__ import annotations

import time


class SystemClock:
    """Time of this machine; see `backends.contracts.Clock`."""

    __slots__ = ()

    monotonic = staticmethod(time.monotonic)
    time = staticmethod(time.time)
