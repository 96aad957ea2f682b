"""Cancellation that redis-py loses on Python 3.11."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")


async def heeding(command: Awaitable[T]) -> T:
    """Await `command` within a task; raise CancelledError when it was asked for meanwhile, whatever came of it.

    redis-py sends through `asyncio.wait_for`, which before Python 3.12 swallows a cancellation that comes
    in the moment the sending ends (CPython issue 86296). A loop over commands would then go on for ever.
    """
    task = asyncio.current_task()
    asked = task.cancelling() if task is not None else 0
    try:
        return await command
    finally:
        if task is not None and task.cancelling() > asked:
            raise asyncio.CancelledError
