"""CPU cost of the codecs: translation per chunk, a large request both ways, and the pass-through.

    python -m tests.bench.bench_dialects

Prints `PASS|FAIL dialects: figures`; exits 1 on FAIL. Each figure is the best of several rounds: the cost of the code,
not of the machine's other work.
"""

from __future__ import annotations

import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any

from gateway.dialects.base import Transcoder
from gateway.dialects.ids import Ids
from gateway.dialects.registry import DecodeOptions, standard
from gateway.dialects.seal import Keys, Sealer
from gateway.dialects.target import Target

CHUNKS = 64
ROUNDS = 25
BARS = {
    "messages_us_per_chunk": 25.0,
    "responses_us_per_chunk": 30.0,
    "messages_100k_ms": 3.0,
    "chat_us_per_chunk": 1.5,  # of a chunk that passes through; the few others of a stream are in the next figure
    "chat_stream_us_per_chunk": 3.0,
}
SEAL = Sealer(Keys.of_secret("bench"), random.Random(3).randbytes).of("tenant")
TARGET = Target("vllm", "glm", reasoning_field="reasoning")
OPTIONS = DecodeOptions(seal=SEAL)
DIALECTS = standard()
REQUESTS: dict[Any, dict[str, Any]] = {
    "messages": {"max_tokens": 256, "messages": [{"role": "user", "content": "hi"}], "thinking": {"type": "adaptive"}},
    "responses": {"input": "hi", "store": False},
    "chat": {"messages": [{"role": "user", "content": "hi"}], "stream_options": {"include_usage": True}},
}


def chunks() -> list[bytes]:
    """A stream of 64 deltas of about 225 bytes: a quarter reasoning, then text, a finish and the counts."""
    head = '"id":"chatcmpl-94a66945c9b8be6b","object":"chat.completion.chunk","created":1796097288,"model":"glm"'

    def event(delta: dict[str, Any], finish: str | None = None) -> bytes:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish, "token_ids": None}
        return f'data: {{{head},"choices":[{json.dumps(choice, separators=(",", ":"))}]}}\n\n'.encode()

    out = [event({"role": "assistant", "content": ""})]
    out += [event({"reasoning": f" thought{i:03}"}) for i in range(CHUNKS // 4)]
    out += [event({"content": f" word{i:03}"}) for i in range(CHUNKS - CHUNKS // 4)]
    usage = {"prompt_tokens": 39, "total_tokens": 103, "completion_tokens": 64}
    last = f'data: {{{head},"choices":[],"usage":{json.dumps(usage)}}}\n\ndata: [DONE]\n\n'
    return [*out, event({}, "stop"), last.encode()]


def transcoder_of(name: Any) -> Transcoder:
    """A fresh transcoder for one stream in a dialect."""
    body = json.dumps(REQUESTS[name] | {"model": "glm", "stream": True}).encode()
    dialect = DIALECTS[name]
    request = dialect.decode_request(body, {}, OPTIONS)
    sent = dialect.encode_engine_request(request, TARGET)
    ids = Ids.create(name, 1_796_097_288, "req_1", random.Random(1))
    return dialect.transcoder(request, sent, TARGET, ids, SEAL)


def best(prepare: Callable[[], Any], run: Callable[[Any], object]) -> float:
    """Seconds of CPU of the fastest of `ROUNDS` runs, each on what a fresh `prepare` made."""
    times = []
    for _ in range(ROUNDS):
        subject = prepare()
        start = time.process_time_ns()
        run(subject)
        times.append(time.process_time_ns() - start)
    return min(times) / 1e9


def stream_us(name: Any) -> float:
    """Microseconds per chunk of a whole stream in a dialect."""
    pieces = chunks()

    def run(transcoder: Transcoder) -> None:
        for piece in pieces:
            transcoder.feed(piece)
        transcoder.eof()
        if not transcoder.finished:
            raise RuntimeError("the stream did not finish")

    return best(lambda: transcoder_of(name), run) / len(pieces) * 1e6


def plain_us() -> float:
    """Microseconds for a Chat chunk in the middle of a stream that passes through."""
    pieces = chunks()

    def prepare() -> Transcoder:
        transcoder = transcoder_of("chat")
        for piece in pieces[:20]:
            transcoder.feed(piece)
        return transcoder

    def run(transcoder: Transcoder) -> None:
        for _ in range(20):
            for piece in pieces[20:CHUNKS]:
                transcoder.feed(piece)

    return best(prepare, run) / (20 * (CHUNKS - 20)) * 1e6


def large_request_ms() -> float:
    """Milliseconds to read a 100 KB Messages request and write it for the engine."""
    tool = {"name": "get_weather", "description": "d" * 400, "input_schema": {"type": "object", "properties": {}}}
    messages: list[dict[str, Any]] = []
    for i in range(50):
        call = {"type": "tool_use", "id": f"toolu_{i}", "name": "get_weather", "input": {"city": "Paris " * 20}}
        result = {"type": "tool_result", "tool_use_id": f"toolu_{i}", "content": "cloudy, " * 150}
        messages += [
            {"role": "assistant", "content": [{"type": "text", "text": "looking it up " * 20}, call]},
            {"role": "user", "content": [result, {"type": "text", "text": "go on"}]},
        ]
    first = {"role": "user", "content": "weather?"}
    fields: dict[str, Any] = {"model": "glm", "max_tokens": 99, "tools": [tool] * 10, "system": "s" * 4000}
    fields["messages"] = [first, *messages]
    body = json.dumps(fields).encode()
    dialect = DIALECTS["messages"]

    def run(raw: bytes) -> None:
        dialect.encode_engine_request(dialect.decode_request(raw, {}, OPTIONS), TARGET)

    return best(lambda: body, run) * 1e3


def main() -> int:
    """Measure and judge."""
    figures = {
        "messages_us_per_chunk": stream_us("messages"),
        "responses_us_per_chunk": stream_us("responses"),
        "messages_100k_ms": large_request_ms(),
        "chat_us_per_chunk": plain_us(),
        "chat_stream_us_per_chunk": stream_us("chat"),
    }
    passed = all(figures[name] <= bar for name, bar in BARS.items())
    shown = " ".join(f"{name}={value:.2f}/{BARS[name]:g}" for name, value in figures.items())
    print(f"{'PASS' if passed else 'FAIL'} dialects: {shown}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
