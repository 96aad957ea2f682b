"""Names and values of span attributes: GenAI and HTTP semantic conventions, and `headrace.*` for what they lack.

Nothing of a prompt or an answer, and no secret, has a name here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from backends.contracts import Candidate
from gateway.telemetry.record import AttemptRecord, ExchangeRecord, Value

Attributes = dict[str, Value | Sequence[str]]

CANDIDATE_LIMIT = 32  # of one decision become events
_TEXT_LIMIT = 128  # characters of what a client chose freely
# Operation by the end of the endpoint, longest first; the conventions allow names beside their own.
_OPERATIONS = (
    ("/chat/completions", "chat"),
    ("/responses", "chat"),
    ("/messages", "chat"),
    ("/completions", "text_completion"),
    ("/embeddings", "embeddings"),
)


def operation(endpoint: str) -> str:
    """`gen_ai.operation.name` of an endpoint; the endpoint's last word where the conventions have none."""
    path = endpoint.rstrip("/")
    for end, name in _OPERATIONS:
        if path.endswith(end):
            return name
    return path.rpartition("/")[2] or "request"


def exchange_attributes(record: ExchangeRecord) -> Attributes:
    """What the exchange's own span says."""
    facts: Attributes = {
        "http.request.method": "POST",
        "url.path": record.endpoint,
        "client.address": record.client,
        "http.response.status_code": record.status,
        "error.type": error_type(record),
        "gen_ai.operation.name": operation(record.endpoint),
        "gen_ai.provider.name": record.attempts[-1].engine if record.attempts else "",
        "gen_ai.request.model": record.model[:_TEXT_LIMIT],
        "gen_ai.response.model": record.resolved,
        "gen_ai.request.stream": record.stream,
        "gen_ai.response.finish_reasons": (record.finish_reason,) if record.finish_reason else (),
        "headrace.request.id": record.request_id,
        "headrace.dialect": record.dialect,
        "headrace.tenant": record.tenant,
        "headrace.key.id": record.key_id,
        "headrace.pool": record.pool,
        "headrace.attempts": len(record.attempts),
        "headrace.adaptations": record.adaptations,
        "headrace.received_bytes": record.received_bytes,
        "headrace.sent_bytes": record.sent_bytes,
    }
    if record.first_token:
        facts["gen_ai.response.time_to_first_chunk"] = record.first_token - record.started
    if record.prompt_tokens:
        facts["gen_ai.usage.input_tokens"] = record.prompt_tokens
        facts["gen_ai.usage.output_tokens"] = record.completion_tokens
        facts["gen_ai.usage.cache_read.input_tokens"] = record.cached_tokens
        facts["gen_ai.usage.reasoning.output_tokens"] = record.reasoning_tokens
    return _known(facts)


def decision_attributes(record: ExchangeRecord, candidates: Sequence[Candidate]) -> Attributes:
    """What the decision's span says beside its candidates."""
    facts: Attributes = {"headrace.decision.candidates": len(candidates)}
    facts["headrace.decision.filtered"] = sum(1 for candidate in candidates if candidate.filtered)
    decision = record.decision
    if decision is not None:
        facts["headrace.decision.policy"] = decision.policy
        facts["headrace.decision.order"] = tuple(replica.id for replica in decision.order[:CANDIDATE_LIMIT])
        facts["headrace.decision.prefill"] = decision.prefill.id if decision.prefill is not None else ""
        facts["headrace.decision.predicted_ttft_ms"] = decision.predicted_ttft_ms
        for tier, tokens in decision.predicted_cached.items():
            facts[f"headrace.decision.predicted_cached.{tier}"] = tokens
    return _known(facts)


def candidate_attributes(candidate: Candidate) -> dict[str, Value]:
    """One candidate: its cost by term, or why it was filtered."""
    facts: dict[str, Value] = {"headrace.replica": candidate.replica}
    if candidate.filtered:
        facts["headrace.candidate.filtered"] = candidate.filtered
        return facts
    facts["headrace.candidate.cost_ms"] = candidate.cost_ms
    if candidate.prefill:
        facts["headrace.candidate.prefill"] = candidate.prefill
    for term, cost_ms in candidate.terms.items():
        facts[f"headrace.candidate.term.{term}_ms"] = cost_ms
    return facts


def best_first(candidates: Sequence[Candidate]) -> list[Candidate]:
    """The candidates worth an event each: cheapest first, filtered ones last, at most CANDIDATE_LIMIT."""
    return sorted(candidates, key=lambda one: (one.filtered != "", one.cost_ms))[:CANDIDATE_LIMIT]


def attempt_attributes(record: ExchangeRecord, attempt: AttemptRecord, number: int) -> Attributes:
    """What the span of the `number`-th attempt (from 1) says. Token usage stays on the exchange's span alone."""
    replica = attempt.replica
    url = urlsplit(replica.url)
    facts: Attributes = {
        "http.request.method": "POST",
        "server.address": url.hostname or "",
        "http.response.status_code": attempt.status or "",
        "error.type": attempt.fault.value if attempt.fault else "",
        "gen_ai.operation.name": operation(record.endpoint),
        "gen_ai.provider.name": attempt.engine,
        "gen_ai.request.model": record.resolved,
        "headrace.pool": replica.pool,
        "headrace.replica": replica.id,
        "headrace.engine.version": replica.version,
        "headrace.attempt.number": number,
        "headrace.received_bytes": attempt.received_bytes,
    }
    if url.port:
        facts["server.port"] = url.port
    return _known(facts)


def error_type(record: ExchangeRecord) -> str:
    """`error.type`: the cause, or the status when none was named; "" for success."""
    if record.error:
        return record.error
    return str(record.status) if record.failed else ""


def as_events(record: ExchangeRecord) -> list[tuple[str, float, Mapping[str, Value]]]:
    """(name, time, attributes) of what happened between the attempts."""
    return [(name, at, attributes) for at, name, attributes in record.events or ()]


def _known(facts: Attributes) -> Attributes:
    return {name: value for name, value in facts.items() if value not in ("", ())}
