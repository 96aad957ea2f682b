from __future__ import annotations

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai

from backends.contracts import Candidate
from gateway.telemetry import attributes as say
from tests.unit.gateway.telemetry.conftest import finished


@pytest.mark.parametrize(
    ("endpoint", "name"),
    [
        ("/v1/chat/completions", "chat"),
        ("/v1/chat/completions/", "chat"),
        ("/v1/responses", "chat"),
        ("/v1/messages", "chat"),
        ("/v1/completions", "text_completion"),
        ("/v1/embeddings", "embeddings"),
        ("/tokenize", "tokenize"),
        ("", "request"),
    ],
)
def test_operations(endpoint: str, name: str) -> None:
    assert say.operation(endpoint) == name


def test_genai_names_are_those_of_the_conventions() -> None:
    known = {getattr(gen_ai, name) for name in dir(gen_ai) if name.startswith("GEN_AI_")}
    record = finished()
    used = {*say.exchange_attributes(record), *say.attempt_attributes(record, record.attempts[1], 2)}
    assert {name for name in used if name.startswith("gen_ai.")} <= known
    assert {name.partition(".")[0] for name in used} == {"gen_ai", "headrace", "http", "url", "client", "server"}


def test_what_an_exchange_says() -> None:
    facts = say.exchange_attributes(finished())
    assert facts["gen_ai.operation.name"] == "chat"
    assert facts["gen_ai.provider.name"] == "sglang"
    assert facts["gen_ai.request.model"] == "gpt-4o"
    assert facts["gen_ai.response.model"] == "glm"
    assert facts["gen_ai.usage.input_tokens"] == 600
    assert facts["gen_ai.usage.output_tokens"] == 41
    assert facts["gen_ai.usage.cache_read.input_tokens"] == 512
    assert facts["gen_ai.response.finish_reasons"] == ("stop",)
    assert facts["gen_ai.response.time_to_first_chunk"] == pytest.approx(0.25)
    assert facts["headrace.tenant"] == "team"
    assert facts["headrace.attempts"] == 2
    assert "error.type" not in facts


def test_false_and_zero_are_facts_and_unknowns_are_left_out() -> None:
    record = finished()
    record.stream, record.finish_reason, record.prompt_tokens, record.first_token = False, "", 0, 0.0
    facts = say.exchange_attributes(record)
    assert facts["gen_ai.request.stream"] is False
    assert facts["headrace.sent_bytes"] == 0
    assert not {
        name for name in facts if name.startswith(("gen_ai.usage", "gen_ai.response.time", "gen_ai.response.f"))
    }


@pytest.mark.parametrize(
    ("status", "error", "name"),
    [(200, "", ""), (200, "truncated", "truncated"), (503, "", "503"), (404, "not_found", "not_found")],
)
def test_error_types(status: int, error: str, name: str) -> None:
    record = finished()
    record.status, record.error = status, error
    assert say.error_type(record) == name


def test_a_decision_and_its_candidates() -> None:
    record = finished()
    assert record.decision is not None
    candidates = record.decision.candidates
    facts = say.decision_attributes(record, candidates)
    assert facts["headrace.decision.policy"] == "p2c"
    assert facts["headrace.decision.candidates"] == 3
    assert facts["headrace.decision.filtered"] == 1
    assert facts["headrace.decision.order"] == ("a/0", "b/0")
    assert facts["headrace.decision.predicted_cached.gpu"] == 512
    assert [one.replica for one in say.best_first(candidates)] == ["a/0", "b/0", "c/0"]
    assert say.candidate_attributes(candidates[0]) == {
        "headrace.replica": "b/0",
        "headrace.candidate.cost_ms": 20.0,
        "headrace.candidate.term.queue_ms": 5.0,
        "headrace.candidate.term.prefill_ms": 15.0,
    }
    assert say.candidate_attributes(candidates[1]) == {
        "headrace.replica": "c/0",
        "headrace.candidate.filtered": "draining",
    }


def test_a_large_fleet_gives_a_bounded_number_of_events() -> None:
    candidates = [Candidate(f"a/{number}", float(-number)) for number in range(500)]
    best = say.best_first(candidates)
    assert len(best) == say.CANDIDATE_LIMIT
    assert best[0].replica == "a/499"


def test_an_attempt_names_its_server() -> None:
    record = finished()
    first = say.attempt_attributes(record, record.attempts[0], 1)
    second = say.attempt_attributes(record, record.attempts[1], 2)
    assert (first["server.address"], first["server.port"]) == ("10.0.0.1", 8000)
    assert (second["server.address"], second["server.port"]) == ("::1", 30000)
    assert (first["error.type"], first["headrace.attempt.number"]) == ("connect", 1)
    assert "http.response.status_code" not in first
    assert second["http.response.status_code"] == 200
    assert "error.type" not in second
