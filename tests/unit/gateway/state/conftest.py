"""One suite over both stores; Redis is a real Valkey. `move` lets time pass for the store under test."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator

import pytest

from gateway.clock import SystemClock
from gateway.config.model import State
from gateway.state.base import StateStore
from gateway.state.choose import open_store
from tests.support.clock import ManualClock
from tests.support.valkey import valkey_server

Move = Callable[[float], Awaitable[None]]


@pytest.fixture(scope="session")
def valkey() -> Iterator[str]:
    with valkey_server() as url:
        yield url


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
