"""Servers on an event loop of their own thread, for clients that block."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, contextmanager
from typing import TypeVar

T = TypeVar("T")


@contextmanager
def in_thread(served: AbstractAsyncContextManager[T]) -> Iterator[T]:
    """Enter `served` in another thread, and leave it there at the end. Its errors are raised here."""
    ready: Future[tuple[T, asyncio.AbstractEventLoop, asyncio.Event]] = Future()

    async def serve() -> None:
        done = asyncio.Event()
        try:
            async with served as value:
                ready.set_result((value, asyncio.get_running_loop(), done))
                await done.wait()
        except BaseException as error:
            if ready.done():
                raise
            ready.set_exception(error)

    with ThreadPoolExecutor(1) as pool:
        ended = pool.submit(asyncio.run, serve())
        value, loop, done = ready.result()
        try:
            yield value
        finally:
            loop.call_soon_threadsafe(done.set)
            ended.result()
