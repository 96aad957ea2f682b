"""What a tenant has stored."""

from typing import Any

import pytest

from gateway.config.model import State
from gateway.errors import Cause, GatewayError
from gateway.responses.library import Library, references
from gateway.responses.record import Record, decode, encode
from gateway.state.memory import MemoryStore
from tests.support.clock import ManualClock


def response_id(number: int) -> str:
    return f"resp_{number:048x}"


def record(number: int, chain: list[str] | None = None, status: str = "completed", text: str = "") -> Record:
    output = [{"id": f"msg_{number}", "type": "message", "role": "assistant", "content": f"out{number}"}]
    made: dict[str, Any] = {"id": response_id(number), "status": status, "output": output}
    return Record(made, [{"role": "user", "content": text or f"in{number}"}], chain or [], home="a/0")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(clock: ManualClock) -> MemoryStore:
    return MemoryStore(clock, limit_bytes=1 << 20)


@pytest.fixture
def library(store: MemoryStore) -> Library:
    return Library(store, State(responses_ttl_s=100), "ann")


def contents(items: list[dict[str, Any]]) -> list[str]:
    return [item["content"] for item in items]


async def test_a_record_comes_back_as_it_was(library: Library) -> None:
    one = record(1, status="incomplete")
    assert await library.save(one)
    assert await library.find(one.id) == one == decode(encode(one))
    assert await library.find(response_id(2)) is None


async def test_tenants_do_not_meet(store: MemoryStore, library: Library) -> None:
    await library.save(record(1))
    other = Library(store, State(), "bob")
    assert await other.find(response_id(1)) is None
    assert await other.items(["msg_1"]) == [None]
    assert await Library(store, State(), f"{response_id(1)}:ann").find("x") is None


async def test_the_history_is_every_turn_in_order(library: Library) -> None:
    turns = [record(1), record(2, [response_id(1)]), record(3, [response_id(1), response_id(2)])]
    for turn in turns:
        await library.save(turn)
    assert contents(await library.history(turns[2], 10_000)) == ["in1", "out1", "in2", "out2", "in3", "out3"]
    assert contents(await library.input_of(turns[2], 10_000)) == ["in1", "out1", "in2", "out2", "in3"]
    with pytest.raises(GatewayError) as caught:
        await library.history(turns[2], 100)
    assert caught.value.cause is Cause.TOO_LARGE


async def test_a_gap_in_the_history_is_an_error_that_names_it(library: Library) -> None:
    for turn in (record(1), record(2, [response_id(1)])):
        await library.save(turn)
    await library.delete(record(1))
    with pytest.raises(GatewayError) as caught:
        await library.history(record(2, [response_id(1)]), 10_000)
    assert response_id(1) in caught.value.message


@pytest.mark.parametrize("status", ["failed", "cancelled", "queued", "in_progress"])
async def test_only_what_is_finished_can_be_continued(library: Library, status: str) -> None:
    await library.save(record(1, status=status))
    with pytest.raises(GatewayError) as caught:
        await library.previous(response_id(1))
    assert caught.value.param == "previous_response_id"


async def test_a_conversation_has_an_end(library: Library) -> None:
    await library.save(record(1, [response_id(9)] * 1000))
    with pytest.raises(GatewayError) as caught:
        await library.previous(response_id(1))
    assert caught.value.code == "conversation_too_long"


async def test_going_on_keeps_the_whole_conversation_alive(library: Library, clock: ManualClock) -> None:
    await library.save(record(1))
    clock.advance(90)
    await library.save(record(2, [response_id(1)]))
    clock.advance(90)
    assert await library.find(response_id(1)) is not None
    clock.advance(20)
    assert await library.find(response_id(1)) is None


async def test_output_items_have_names(library: Library) -> None:
    await library.save(record(1))
    assert await library.items(["msg_2", "msg_1"]) == [None, record(1).response["output"][0]]
    await library.delete(record(1))
    assert await library.items(["msg_1"]) == [None]
    assert references([{"type": "item_reference", "id": "a"}, {"role": "user"}]) == ["a"]


async def test_what_is_too_large_is_not_stored(store: MemoryStore) -> None:
    library = Library(store, State(response_limit_bytes=500), "ann")
    assert not await library.save(record(1, text="x" * 500))
    assert not await library.add_events(response_id(1), 0, b"x" * 501)
    assert len(store) == 0


async def test_a_tenant_has_its_share(store: MemoryStore) -> None:
    library = Library(store, State(responses_bytes_per_tenant=2000), "ann")
    await Library(store, State(), "bob").save(record(1))
    for number in range(1, 30):
        await library.save(record(number))
    found = [await library.find(response_id(number)) is not None for number in range(1, 30)]
    assert found[-3:] == [True] * 3
    assert found[0] is False
    assert await Library(store, State(), "bob").find(response_id(1)) is not None


async def test_deleting_takes_the_events_too(library: Library, store: MemoryStore) -> None:
    one = record(1)
    one.batches = 2
    await library.save(one)
    for number in range(2):
        await library.add_events(one.id, number, b"data")
    assert await library.events(one.id, 1) == b"data"
    await library.delete(one)
    assert len(store) == 0


async def test_marks_end_by_themselves(library: Library, clock: ManualClock) -> None:
    await library.still_running(response_id(1), 10)
    await library.ask_to_stop(response_id(1), 10)
    assert await library.is_running(response_id(1))
    assert await library.asked_to_stop(response_id(1))
    clock.advance(11)
    assert not await library.is_running(response_id(1))
    assert not await library.asked_to_stop(response_id(1))


async def test_switched_off_nothing_is_there(store: MemoryStore) -> None:
    await Library(store, State(), "ann").save(record(1))
    off = Library(store, State(store_responses=False), "ann")
    assert not off.enabled
    assert not await off.ready()
    assert await off.find(response_id(1)) is None
    assert await off.items(["msg_1"]) == [None]
