"""A finished exchange with two attempts, made under a clock that tests move."""

from __future__ import annotations

import itertools

import pytest

from backends.contracts import Candidate, Decision, Fault, FleetSnapshot, LoadTable, Replica, ReplicaState
from gateway.config.model import Telemetry as TelemetryConfig
from gateway.telemetry.hub import Telemetry
from gateway.telemetry.ids import IdSource
from gateway.telemetry.lines import LineWriter
from gateway.telemetry.record import ExchangeRecord
from gateway.telemetry.sampling import Sampler

A0 = Replica("a/0", "a", "http://10.0.0.1:8000", 0, ReplicaState.READY, version="0.32.0")
B0 = Replica("b/0", "b", "http://[::1]:30000", 1, ReplicaState.READY)
WALL = 1_700_000_000.25


class ManualClock:
    """Monotonic and wall time that stand still until told."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return WALL + self.now - 100.0


def counting_ids() -> IdSource:
    """Ids that differ and never change between runs."""
    numbers = itertools.count(1)
    return IdSource(lambda size: b"".join(next(numbers).to_bytes(8, "big") for _ in range(size // 8)))


def finished(sampler: Sampler | None = None) -> ExchangeRecord:
    """A streamed chat exchange: a refused connection on a/0, then an answer from b/0."""
    record = (sampler or Sampler(1.0, 30.0)).start(counting_ids(), "req_1", None, 100.0, WALL)
    record.endpoint, record.dialect, record.client = "/v1/chat/completions", "chat", "10.9.9.9"
    record.tenant, record.key_id, record.model, record.resolved = "team", "k1", "gpt-4o", "glm"
    record.stream = True
    record.deciding, record.decided = 100.001, 100.0012
    record.decision = Decision(
        "p2c",
        (A0, B0),
        (
            Candidate("b/0", 20.0, {"queue": 5.0, "prefill": 15.0}),
            Candidate("c/0", filtered="draining"),
            Candidate("a/0", 10.0, {"queue": 1.0, "prefill": 9.0}),
        ),
        predicted_ttft_ms=10.0,
        predicted_cached={"gpu": 512},
    )
    first = record.attempt(A0, "vllm", 100.002)
    first.ended, first.fault, first.message = 100.003, Fault.CONNECT, "connection refused"
    second = record.attempt(B0, "sglang", 100.004)
    second.connected, second.first_byte, second.ended = 100.005, 100.2, 101.0
    second.status, second.received_bytes = 200, 2048
    record.first_token, record.ended = 100.25, 101.25
    record.status, record.finish_reason = 200, "stop"
    record.prompt_tokens, record.cached_tokens = 600, 512
    record.completion_tokens, record.reasoning_tokens = 41, 7
    record.adaptations = ("effort:high",)
    return record


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def lines() -> list[bytes]:
    return []


@pytest.fixture
def table() -> LoadTable:
    return LoadTable(2)


@pytest.fixture
def make_telemetry(clock: ManualClock, lines: list[bytes], table: LoadTable):  # type: ignore[no-untyped-def]
    """Build a Telemetry whose log lines land in `lines` when its writer is closed."""
    fleet = FleetSnapshot(1, (A0, B0), {"a": (A0,), "b": (B0,)}, table)

    def make(**config: object) -> tuple[Telemetry, LineWriter]:
        writer = LineWriter(lines.append)
        writer.start()
        telemetry = Telemetry(
            TelemetryConfig.model_validate(config),
            clock=clock,
            ids=counting_ids(),
            snapshot=lambda: fleet,
            lines=writer,
            version="1.2.3",
        )
        return telemetry, writer

    return make
