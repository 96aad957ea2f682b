"""When a failed attempt is followed by another."""

import pytest

from backends.contracts import EngineFailure, Fault
from policies.retry import RetryBudget, may_retry
from tests.support.clock import ManualClock


def budget(clock: ManualClock, ratio: float = 0.2, reserve: int = 2) -> RetryBudget:
    return RetryBudget(clock, ratio, reserve)


def test_reserve_is_spent_and_comes_back_with_time() -> None:
    clock = ManualClock()
    retries = budget(clock)
    assert [retries.spend() for _ in range(3)] == [True, True, False]
    clock.advance(5.0)
    assert [retries.spend() for _ in range(2)] == [True, False]


def test_traffic_earns_its_share_of_retries() -> None:
    retries = budget(ManualClock(), ratio=0.25, reserve=0)
    for _ in range(8):
        retries.exchange()
    assert [retries.spend() for _ in range(3)] == [True, True, False]


@pytest.mark.parametrize("fault", [f for f in Fault if f not in (Fault.CLIENT, Fault.STALE)])
def test_another_replica_may_do_better(fault: Fault) -> None:
    retries = budget(ManualClock(), reserve=5)
    assert may_retry(EngineFailure(fault, "x"), 1, 3, retries) == ""
    assert may_retry(EngineFailure(fault, "x"), 3, 3, retries) == "3 attempts were made"


def test_a_clients_fault_is_never_retried() -> None:
    assert may_retry(EngineFailure(Fault.CLIENT, "x"), 1, 3, budget(ManualClock()))


def test_a_stale_connection_is_free() -> None:
    retries = budget(ManualClock(), reserve=0)
    assert may_retry(EngineFailure(Fault.STALE, "x"), 3, 3, retries) == ""
    assert may_retry(EngineFailure(Fault.RESET, "x"), 1, 3, retries) == "the retry budget is spent"
