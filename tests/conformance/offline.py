"""The translation vectors without sockets: decode, encode for the engine, transcode, in the order of the pipeline."""

from __future__ import annotations

import json
import random
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from backends.engines import base, sglang, vllm
from gateway.dialects.counting import count_messages
from gateway.dialects.ids import Ids
from gateway.dialects.registry import DecodeOptions, Dialect, standard
from gateway.dialects.seal import Keys, Sealer
from gateway.dialects.target import Target
from gateway.errors import GatewayError, from_failure
from tests.conformance.assertions import check_stream, jl, test
from tests.conformance.client import split_done

VECTORS = Path(__file__).with_name("vectors.jsonl")
MODEL = "claude-glm"  # not the engine's name: what the client sent is what it must see
_KEYS = Keys.of_secret("conformance")


def load(path: Path = VECTORS) -> list[dict[str, Any]]:
    """All vectors of a file."""
    return [json.loads(line) for line in path.read_text().splitlines() if line]


@dataclass
class Answer:
    """What the client got, and what the engine was sent."""

    status: int
    headers: dict[str, str]
    body: bytes
    sent: list[dict[str, Any]] = field(default_factory=list)
    committed: bool = False


def kind_of(vector: dict[str, Any]) -> base.EngineKind:
    """The engine kind whose spelling the vector uses."""
    return sglang.Sglang() if vector["backend_dialect"].endswith("sglang") else vllm.Vllm()


def target_of(kind: base.EngineKind) -> Target:
    """A pool of that kind which serves a GLM."""
    return Target(
        engine=kind.spec.name, model="glm", reasoning_field=kind.spec.reasoning_field, frame_failure=kind.frame_failure
    )


def upstream_bytes(vector: dict[str, Any]) -> bytes:
    """The engine's event stream, with the vector's transport quirks."""
    quirks = vector.get("transport") or {}
    nl = "\r\n" if quirks.get("crlf") else "\n"
    space = "" if quirks.get("no_space") else " "
    out = "\ufeff" if quirks.get("bom") else ""
    for chunk in vector["upstream_sse"]:
        if quirks.get("comments"):
            out += f": ping{nl}{nl}"
        text = chunk if isinstance(chunk, str) else json.dumps(chunk, ensure_ascii=not quirks.get("split_every"))
        if quirks.get("crlf") and not isinstance(chunk, str):
            text = text.replace(', "created"', f",{nl}data:{space}" + '"created"', 1)
        out += f"data:{space}{text}{nl}{nl}"
    return out.encode("utf-8", "surrogatepass")


def exchange(vector: dict[str, Any], *, step: int | None = None) -> Answer:
    """Drive one vector; `step` overrides the size of the pieces in which the engine's bytes arrive."""
    counts = "count_tokens" in vector["request"]["path"]
    dialect: Dialect = count_messages() if counts else standard()[vector["dialect_in"]]
    body = json.dumps(vector["request"]["body"]).replace('"MODEL"', json.dumps(MODEL)).encode()
    seal = Sealer(_KEYS, random.Random(7).randbytes).of("tenant")
    kind = kind_of(vector)
    sent: list[dict[str, Any]] = []
    try:
        headers = {k.lower(): v for k, v in vector["request"].get("headers", {}).items()}
        request = dialect.decode_request(body, headers, DecodeOptions(seal=seal))
        target = target_of(kind)
        engine = dialect.encode_engine_request(request, target)
        sent.append(json.loads(engine.body))
        ids = Ids.create(dialect.name, 1_790_000_001, "req_test", random.Random(1))
        transcoder = dialect.transcoder(request, engine, target, ids, seal)
        answer = _respond(vector, kind, transcoder, step)
    except GatewayError as error:
        status, told, payload = dialect.encode_error(error, "req_test")
        return Answer(status, told, payload, sent)
    return Answer(200, engine.headers, answer, sent, committed=True)


def _respond(vector: dict[str, Any], kind: base.EngineKind, transcoder: Any, step: int | None) -> bytes:
    """Feed the engine's answer; raises GatewayError when nothing was committed before a failure."""
    given = vector.get("upstream_response")
    if given is not None and given["status"] >= 400:
        failure = kind.failure(given["status"], "application/json", json.dumps(given["json"]).encode())
        raise from_failure(failure)
    data = json.dumps(given["json"]).encode() if given is not None else upstream_bytes(vector)
    size = step or (vector.get("transport") or {}).get("split_every") or 4096
    out = b""
    for start in range(0, len(data), size):
        out += transcoder.feed(data[start : start + size])
        if transcoder.failure is not None or transcoder.abort_engine:
            break
    if transcoder.failure is None:
        out += transcoder.eof()
    if transcoder.failure is not None:
        if not transcoder.started:
            raise from_failure(transcoder.failure)
        out += transcoder.fail(from_failure(transcoder.failure))
    return out


def events_of(text: str) -> tuple[list[tuple[str | None, Any]], bool]:
    """A client stream as (event name, payload) pairs, and whether `[DONE]` came."""
    events: list[tuple[str | None, str]] = []
    name: str | None = None
    data: list[str] = []
    for line in re.split(r"\r\n|\n|\r", text):
        if not line:
            if data:
                events.append((name, "\n".join(data)))
            name, data = None, []
        elif line.startswith("event:"):
            name = line[6:].strip()
        elif line.startswith("data:"):
            data.append(line[5:].removeprefix(" "))
    return split_done(events)


def problems(vector: dict[str, Any], got: Answer) -> list[str]:
    """What of the vector's expectations is not met."""
    want = vector["expect"]
    statuses = want.get("status_in") or [want["status"]]
    if got.status not in statuses:
        return [f"status {got.status}, want {statuses}: {got.body[:160]!r}"]
    if got.status == 404 and "status_in" in want:
        return []
    errors = []
    for name, op, value in want.get("headers", []):
        errors.append(test({"h": got.headers[name]} if name in got.headers else {}, ["h", op, value]))
    errors += [test(got.sent[-1], a) for a in (want.get("upstream") or {}).get("body", [])]
    calls = (want.get("upstream") or {}).get("calls")
    if calls is not None and len(got.sent) != calls:
        errors.append(f"{len(got.sent)} engine requests, want {calls}")
    if "stream" in want:
        events, done = events_of(got.body.decode())
        include_usage = (vector["request"]["body"].get("stream_options") or {}).get("include_usage") or False
        errors += check_stream(vector, events, done, include_usage) if events else ["empty stream"]
    errors += [test(jl(got.body.decode()), assertion) for assertion in want.get("body", [])]
    return [error for error in errors if error]
