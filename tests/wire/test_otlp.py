"""Spans, metrics and log lines of a whole gateway, as a collector, a scraper and a log reader get them."""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import (
    DONE,
    ROLE,
    STREAM_HEAD,
    Answer,
    Asked,
    Engine,
    chunk,
    completes,
    engine,
    finish,
    response,
    says,
    streams,
    text,
)
from tests.support.otlp import Collector, attributes, collector

TRACE, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
KEY = "hr_0123456789abcdef0123456789abcdef"
PROMPT = "a prompt that nobody else may read"
TENANT = {"name": "team", "keys": [{"id": "k1", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}
USAGE = {"prompt_tokens": 12, "completion_tokens": 2, "total_tokens": 14, "prompt_tokens_details": {"cached_tokens": 8}}
COUNTED = b"data: " + json.dumps({"id": "x", "model": "glm", "choices": [], "usage": USAGE}).encode() + b"\n\n"
BUSY = says(response(503, {"error": {"message": "busy", "type": "Service Unavailable", "param": None, "code": 503}}))
GOOD = streams(ROLE, text("Hello"), finish(), COUNTED, DONE)
CUT = says(STREAM_HEAD, chunk(ROLE), chunk(text("Hello")), hang_up=True)


def in_turn(*answers: Answer) -> Answer:
    """The first request gets the first answer, and so on; the last one is for all that follow."""
    left = list(answers)

    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        await (left.pop(0) if len(left) > 1 else left[0])(made, reader, writer, asked)

    return answer


@dataclass
class Told:
    """Everything one exchange left behind, read after the gateway has ended."""

    status: int
    trace_id: str
    spans: list[Span]
    lines: list[dict[str, Any]]
    metrics: str
    engine: Engine

    def span(self, name: str) -> Span:
        """The only span of this name."""
        (found,) = (span for span in self.spans if span.name == name)
        return found

    @property
    def exchange(self) -> Span:
        return self.span("chat glm")

    @property
    def attempts(self) -> list[Span]:
        return [span for span in self.spans if span.name == "attempt"]


@pytest.fixture
def sink() -> Iterator[Collector]:
    with collector() as running:
        yield running


@asynccontextmanager
async def running(answer: Answer, **telemetry: Any) -> AsyncIterator[tuple[Running, Engine]]:
    """A gateway in front of one engine that it knows as two replicas."""
    async with engine(answer) as made:
        pool = pool_of(made.url, made.url.replace("127.0.0.1", "localhost"), breaker={"enabled": False})
        async with gateway(config_of([pool], tenants=[TENANT], telemetry=telemetry)) as running:
            yield running, made


async def tell(answer: Answer, sink: Collector, *, caller: str = "", key: str = KEY, **body: Any) -> Told:
    """Make one exchange, and collect what is told of it."""
    headers = {"authorization": f"Bearer {key}"} | ({"traceparent": caller, "tracestate": "vendor=1"} if caller else {})
    async with running(answer, otlp_endpoint=sink.url) as (target, made):
        asked = {"messages": [{"role": "user", "content": PROMPT}], **body}
        async with target.chat(asked, headers=headers) as got:
            status, trace_id = got.status, got.headers["x-gateway-trace-id"]
            await got.content.read()
        await target.settled()
        async with target.client.get(f"{target.admin_url}/metrics") as scraped:
            metrics = await scraped.text()
    lines = [json.loads(line) for line in b"".join(target.access_log).splitlines()]
    return Told(status, trace_id, sink.trace(trace_id), lines, metrics, made)


def joined(flag: str = "01") -> str:
    return f"00-{TRACE}-{PARENT}-{flag}"


async def test_the_spans_of_a_streamed_exchange(sink: Collector) -> None:
    told = await tell(GOOD, sink, caller=joined(), stream=True)
    assert (told.status, told.trace_id) == (200, TRACE)
    exchange, decision, (attempt,) = told.exchange, told.span("decision"), told.attempts
    assert len(told.spans) == 3
    assert exchange.parent_span_id.hex() == PARENT
    assert {decision.parent_span_id, attempt.parent_span_id} == {exchange.span_id}
    assert [exchange.kind, decision.kind, attempt.kind] == [
        Span.SPAN_KIND_SERVER,
        Span.SPAN_KIND_INTERNAL,
        Span.SPAN_KIND_CLIENT,
    ]
    assert exchange.start_time_unix_nano <= decision.start_time_unix_nano <= attempt.start_time_unix_nano
    assert attempt.end_time_unix_nano <= exchange.end_time_unix_nano
    facts = attributes(exchange)
    assert (facts["gen_ai.usage.input_tokens"], facts["gen_ai.usage.cache_read.input_tokens"]) == (12, 8)
    assert (facts["gen_ai.request.stream"], facts["headrace.tenant"], facts["headrace.key.id"]) == (True, "team", "k1")
    assert attributes(decision)["headrace.decision.candidates"] == 2


async def test_a_whole_answer_has_the_same_spans(sink: Collector) -> None:
    told = await tell(completes(), sink, caller=joined())
    assert sorted(span.name for span in told.spans) == ["attempt", "chat glm", "decision"]
    assert attributes(told.exchange)["gen_ai.request.stream"] is False


async def test_the_engine_hangs_its_spans_below_the_attempts(sink: Collector) -> None:
    told = await tell(GOOD, sink, caller=joined(), stream=True)
    (asked,) = told.engine.chats
    assert asked.headers["traceparent"] == f"00-{TRACE}-{told.attempts[0].span_id.hex()}-01"
    assert asked.headers["tracestate"] == "vendor=1"


async def test_an_engine_does_not_trace_what_the_caller_does_not(sink: Collector) -> None:
    told = await tell(GOOD, sink, caller=joined("00"), stream=True)
    assert told.engine.chats[0].headers["traceparent"].endswith("-00")
    assert told.spans == []


async def test_a_retried_exchange_has_both_attempts_and_is_no_error(sink: Collector) -> None:
    told = await tell(in_turn(BUSY, GOOD), sink, caller=joined(), stream=True)
    assert told.status == 200
    assert [attributes(span).get("error.type") for span in told.attempts] == ["overloaded", None]
    assert [attributes(span)["headrace.attempt.number"] for span in told.attempts] == [1, 2]
    assert told.exchange.status.code == 0
    assert 'headrace_retries_total{pool="a"} 1.0' in told.metrics
    assert 'headrace_attempts_total{outcome="overloaded",pool="a"} 1.0' in told.metrics


async def test_a_failed_exchange_is_kept_though_nobody_sampled_it(sink: Collector) -> None:
    told = await tell(BUSY, sink)
    assert told.status == 503
    assert told.exchange.status.code == 2
    assert attributes(told.exchange)["http.response.status_code"] == 503
    assert {span.status.code for span in told.attempts} == {2}


async def test_a_stream_that_breaks_is_an_error(sink: Collector) -> None:
    told = await tell(CUT, sink, stream=True)
    assert told.exchange.status.code == 2


async def test_a_refused_key_is_kept_without_attempts(sink: Collector) -> None:
    async with engine(GOOD) as made:
        config = config_of(
            [pool_of(made.url)], auth={"mode": "keys"}, tenants=[TENANT], telemetry={"otlp_endpoint": sink.url}
        )
        async with gateway(config) as target, target.chat(headers={"x-api-key": "wrong"}) as got:
            assert got.status == 401
    assert [attributes(span)["http.response.status_code"] for span in sink.spans] == [401]
    assert made.chats == []


async def test_a_good_exchange_that_nobody_sampled_is_not_sent(sink: Collector) -> None:
    told = await tell(GOOD, sink, stream=True)
    assert told.spans == []
    assert "headrace_traces_exported_total 0.0" in told.metrics


async def test_one_log_line_says_what_the_client_got(sink: Collector) -> None:
    told = await tell(in_turn(BUSY, GOOD), sink, caller=joined(), stream=True)
    (line,) = told.lines
    expected = {
        "status": 200,
        "tenant": "team",
        "pool": "a",
        "attempts": 2,
        "faults": ["overloaded"],
        "trace_id": TRACE,
    }
    assert {name: line[name] for name in expected} == expected
    assert (line["prompt_tokens"], line["cached_tokens"], line["completion_tokens"]) == (12, 8, 2)


async def test_an_invented_model_is_logged_and_makes_no_series(sink: Collector) -> None:
    told = await tell(GOOD, sink, model="invented")
    assert told.status == 404
    assert [(line["model"], line["status"]) for line in told.lines] == [("invented", 404)]
    assert 'headrace_exchanges_total{dialect="chat",model="other",pool="",status="4xx"} 1.0' in told.metrics
    assert "invented" not in told.metrics


async def test_no_prompt_answer_or_key_is_told(sink: Collector) -> None:
    told = await tell(in_turn(BUSY, GOOD), sink, caller=joined(), stream=True)
    everywhere = [json.dumps(told.lines), told.metrics, b"".join(sink.bodies).decode("utf-8", "replace")]
    assert not [secret for one in everywhere for secret in (PROMPT, "Hello", KEY) if secret in one]


@pytest.mark.parametrize("trouble", ["down", "slow", "refusing"])
async def test_a_collector_in_trouble_changes_nothing_for_clients(trouble: str, sink: Collector) -> None:
    sink.delay_s = 3.0 if trouble == "slow" else 0.0
    sink.status = 500 if trouble == "refusing" else 200
    url = "http://127.0.0.1:9" if trouble == "down" else sink.url
    async with running(GOOD, otlp_endpoint=url, sample_ratio=1) as (target, _):
        for _ in range(50):
            async with target.chat({"stream": True}) as got:
                assert got.status == 200
                assert DONE.strip() in await got.content.read()
        await target.settled()
    assert len(b"".join(target.access_log).splitlines()) == 50
