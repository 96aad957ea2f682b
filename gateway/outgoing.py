"""The request that goes to an engine: head and body as bytes, with what routing wants of the engine written in."""

from __future__ import annotations

from backends.contracts import Decision, Tier
from backends.fleet import Member
from gateway.dialects.registry import EngineRequest
from gateway.runtime import PoolRuntime
from gateway.telemetry.record import AttemptRecord, ExchangeRecord


def engine_request(
    exchange: ExchangeRecord,
    attempt: AttemptRecord,
    pool: PoolRuntime,
    member: Member,
    sent: EngineRequest,
    *,
    rid: str,
    decision: Decision,
) -> tuple[bytes, bytes]:
    """Head and body for the engine. Of the client's own headers only the trace goes on.

    `rid` names the request inside an engine that has to be told when to abort it, "" elsewhere.
    """
    fields = []
    if rid:
        fields.append(f'"{pool.kind.spec.rid_field}":"{rid}"')
    if decision.load_tiers is not None and pool.config.obeys_load_tiers and b'"kv_transfer_params"' not in sent.body:
        fields.append(f'"kv_transfer_params":{_load_only(decision.load_tiers)}')
    body = _with_fields(sent.body, ",".join(fields)) if fields else sent.body
    return engine_head(exchange, attempt, pool, member, sent.path, len(body), dp_rank=decision.dp_rank), body


def engine_head(
    exchange: ExchangeRecord,
    attempt: AttemptRecord,
    pool: PoolRuntime,
    member: Member,
    path: str,
    length: int,
    *,
    dp_rank: int | None = None,
) -> bytes:
    """Request line and headers for a body of `length` bytes."""
    state = f"tracestate: {exchange.tracestate}\r\n" if exchange.tracestate else ""
    rank = f"x-data-parallel-rank: {dp_rank}\r\n" if dp_rank is not None else ""
    head = (
        f"POST {member.connections.path}{path} HTTP/1.1\r\nhost: {member.connections.host}\r\n"
        f"content-type: application/json\r\ncontent-length: {length}\r\n"
        f"x-request-id: {exchange.request_id}-{len(exchange.attempts)}\r\n"
        f"traceparent: {exchange.traceparent(attempt)}\r\n{state}{rank}"
    )
    return head.encode("latin-1", "replace") + pool.authorization + b"\r\n"


def _with_fields(body: bytes, fields: str) -> bytes:
    """A JSON object that is not empty, with more fields at its beginning."""
    at = body.index(b"{") + 1
    return b"%b%b,%b" % (body[:at], fields.encode(), body[at:])


def _load_only(tiers: tuple[Tier, ...]) -> str:
    """vLLM's words for restoring from these tiers alone. An empty list of tiers still allows host memory."""
    return '{"kv_load_tiers":[]}' if "host" in tiers else '{"max_load_tokens":0}'
