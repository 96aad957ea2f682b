"""Identity, counters and health of replicas."""

from collections.abc import AsyncIterator
from dataclasses import replace

import pytest

from backends.contracts import EngineFailure, Fault, FleetSnapshot, Load, ReplicaState
from backends.engines import builtin
from backends.fleet import Fleet, PoolSpec
from tests.support.clock import ManualClock

A = PoolSpec("a", "vllm", "glm", ("http://127.0.0.1:1", "http://127.0.0.1:2"), breaker_failures=3)
B = PoolSpec("b", "sglang", "glm", ("http://127.0.0.1:3",))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def fleet(clock: ManualClock) -> AsyncIterator[Fleet]:
    made = Fleet(builtin(), clock)
    made.apply([A, B])
    yield made
    made.apply([])


def counters(snapshot: FleetSnapshot, replica_id: str) -> tuple[int, int, int]:
    row = next(r.row for r in snapshot.replicas if r.id == replica_id)
    table = snapshot.table
    return table.exchanges[row], table.prefill_tokens[row], table.context_tokens[row]


async def test_replicas_have_stable_ids(fleet: Fleet) -> None:
    assert [r.id for r in fleet.snapshot().replicas] == ["a/0", "a/1", "b/0"]
    joined, left = fleet.apply([replace(A, urls=("http://127.0.0.1:2", "http://127.0.0.1:9")), B])
    assert [m.id for m in joined] == ["a/0"]
    assert [m.url for m in left] == ["http://127.0.0.1:1"]
    ids = {r.url: r.id for r in fleet.snapshot().by_pool["a"]}
    assert ids == {"http://127.0.0.1:2": "a/1", "http://127.0.0.1:9": "a/0"}


async def test_a_replica_that_stays_takes_on_what_its_pool_now_says(fleet: Fleet) -> None:
    fleet.apply([replace(A, connect_s=9.0, silent_s=5.0), B])
    member = fleet.member("a/0")
    assert member is not None
    assert (member.connections.connect_s, member.spec.silent_s) == (9.0, 5.0)


async def test_snapshot_is_rebuilt_only_on_news(fleet: Fleet) -> None:
    first = fleet.snapshot()
    assert fleet.snapshot() is first
    member = fleet.member("a/0")
    assert member is not None
    assert fleet.set_state(member, ReplicaState.READY)
    assert not fleet.set_state(member, ReplicaState.READY)
    assert fleet.snapshot() is not first
    assert first.replicas[0].state is ReplicaState.STARTING


async def test_a_lease_counts_until_released_however_often(fleet: Fleet) -> None:
    member = fleet.member("a/1")
    assert member is not None
    lease = fleet.lease(member, 700, 1000, streams=True)
    assert counters(fleet.snapshot(), "a/1") == (1, 700, 1000)
    lease.first_token(fleet.clock.monotonic())
    lease.first_token(fleet.clock.monotonic())
    assert counters(fleet.snapshot(), "a/1") == (1, 0, 1000)
    lease.release()
    lease.release()
    assert counters(fleet.snapshot(), "a/1") == (0, 0, 0)


async def test_a_lease_released_before_the_first_token_takes_its_prefill_back(fleet: Fleet) -> None:
    member = fleet.member("b/0")
    assert member is not None
    fleet.lease(member, 5, 5, streams=True).release()
    assert counters(fleet.snapshot(), "b/0") == (0, 0, 0)
    assert member.waiting == 0


async def test_counters_survive_a_change_of_the_fleet(fleet: Fleet) -> None:
    member, leaver = fleet.member("b/0"), fleet.member("a/0")
    assert member is not None
    assert leaver is not None
    lease, leaving = fleet.lease(member, 10, 20, streams=True), fleet.lease(leaver, 1, 1, streams=True)
    fleet.apply([B])
    assert counters(fleet.snapshot(), "b/0") == (1, 10, 20)
    leaving.release()
    lease.release()
    assert counters(fleet.snapshot(), "b/0") == (0, 0, 0)


async def test_failures_in_a_row_take_a_replica_out_for_a_while(fleet: Fleet, clock: ManualClock) -> None:
    member = fleet.member("a/0")
    assert member is not None
    for _ in range(2):
        fleet.failed(member, EngineFailure(Fault.RESET, "x"))
    assert fleet.held_by_traffic(member) == ""
    fleet.failed(member, EngineFailure(Fault.TIMEOUT, "x"))
    assert "3 failures in a row" in fleet.held_by_traffic(member)
    assert member.state is ReplicaState.HELD
    clock.advance(10.1)
    assert fleet.held_by_traffic(member) == ""
    fleet.failed(member, EngineFailure(Fault.RESET, "x"))  # one more is enough now
    assert fleet.held_by_traffic(member)
    clock.advance(10.1)
    fleet.succeeded(member)
    fleet.failed(member, EngineFailure(Fault.RESET, "x"))
    assert fleet.held_by_traffic(member) == ""


@pytest.mark.parametrize("fault", [Fault.CLIENT, Fault.STALE, Fault.OVERLOADED])
async def test_what_is_no_illness_does_not_count(fleet: Fleet, fault: Fault) -> None:
    member = fleet.member("a/0")
    assert member is not None
    for _ in range(10):
        fleet.failed(member, EngineFailure(fault, "x"))
    assert fleet.held_by_traffic(member) == ""


async def test_a_switched_off_breaker_never_opens(fleet: Fleet) -> None:
    fleet.apply([replace(A, breaker_failures=0), B])
    member = fleet.member("a/0")
    assert member is not None
    for _ in range(10):
        fleet.failed(member, EngineFailure(Fault.RESET, "x"))
    assert fleet.held_by_traffic(member) == ""


async def test_a_replica_that_takes_requests_and_stays_silent_is_held(fleet: Fleet, clock: ManualClock) -> None:
    member = fleet.member("a/0")
    assert member is not None
    clock.advance(500.0)  # idle time is no silence
    first = fleet.lease(member, 1, 1, streams=True)
    clock.advance(40.0)
    second = fleet.lease(member, 1, 1, streams=True)
    clock.advance(21.0)
    assert "silent" in fleet.held_by_traffic(member)
    first.first_token(fleet.clock.monotonic())
    assert fleet.held_by_traffic(member) == ""
    second.release()
    clock.advance(100.0)
    assert fleet.held_by_traffic(member) == ""


async def test_an_answer_that_is_not_streamed_is_silent_until_it_ends(fleet: Fleet, clock: ManualClock) -> None:
    member = fleet.member("a/0")
    assert member is not None
    long = fleet.lease(member, 1, 1, streams=False)
    clock.advance(500.0)
    assert fleet.held_by_traffic(member) == ""
    stream = fleet.lease(member, 1, 1, streams=True)
    clock.advance(59.0)
    assert fleet.held_by_traffic(member) == ""
    clock.advance(2.0)
    assert "silent" in fleet.held_by_traffic(member)
    long.first_token(fleet.clock.monotonic())  # it works, after all
    assert fleet.held_by_traffic(member) == ""
    for lease in (long, stream):
        lease.release()
    assert (member.waiting, member.leases) == (0, 0)


async def test_reports_reach_the_snapshot(fleet: Fleet) -> None:
    member = fleet.member("b/0")
    assert member is not None
    fleet.report(member, Load(running=3), "0.5.23")
    replica = fleet.snapshot().by_pool["b"][0]
    assert (replica.load.running, replica.version) == (3, "0.5.23")
