from __future__ import annotations

import json

from gateway.telemetry.access import AccessLog
from gateway.telemetry.ids import IdSource
from gateway.telemetry.record import ExchangeRecord
from gateway.telemetry.sampling import Sampler
from tests.unit.gateway.telemetry.conftest import WALL, finished


def line_of(record: ExchangeRecord) -> dict[str, object]:
    out: list[bytes] = []
    AccessLog(out.append).exchange(record)
    assert len(out) == 1
    assert out[0].endswith(b"}\n")
    assert out[0].count(b"\n") == 1
    line: dict[str, object] = json.loads(out[0])
    return line


def test_a_full_exchange() -> None:
    record = finished()
    assert line_of(record) == {
        "ts": "2023-11-14T22:13:21.500Z",
        "event": "exchange",
        "request_id": "req_1",
        "trace_id": record.trace_id,
        "status": 200,
        "duration_ms": 1250.0,
        "endpoint": "/v1/chat/completions",
        "dialect": "chat",
        "tenant": "team",
        "key_id": "k1",
        "client": "10.9.9.9",
        "model": "gpt-4o",
        "resolved": "glm",
        "stream": True,
        "pool": "b",
        "replica": "b/0",
        "attempts": 2,
        "faults": ["connect"],
        "ttft_ms": 250.0,
        "decision_ms": 0.2,
        "prompt_tokens": 600,
        "cached_tokens": 512,
        "completion_tokens": 41,
        "reasoning_tokens": 7,
        "finish_reason": "stop",
        "adaptations": ["effort:high"],
        "sampled": True,
    }


def test_a_refused_exchange_says_only_what_is_known() -> None:
    record = Sampler(0.0, 30.0).start(IdSource(), "r", None, 10.0, WALL)
    record.endpoint, record.status, record.error, record.ended = "/v1/models", 401, "unauthenticated", 10.001
    line = line_of(record)
    assert set(line) == {"ts", "event", "request_id", "trace_id", "status", "duration_ms", "endpoint", "error"}


def test_text_of_a_client_cannot_break_out_of_its_line() -> None:
    record = finished()
    record.model = 'x"\n{"event":"exchange"}\x00\u2028' + "y" * 10_000
    model = line_of(record)["model"]
    assert isinstance(model, str)
    assert model == record.model[:128]


def test_the_time_is_that_of_the_end_also_in_the_next_second() -> None:
    out: list[bytes] = []
    log, record = AccessLog(out.append), finished()
    for ended in (100.0, 100.5, 100.875, 161.0):
        record.ended = ended
        log.exchange(record)
    assert [json.loads(line)["ts"][17:] for line in out] == ["20.250Z", "20.750Z", "21.125Z", "21.250Z"]
