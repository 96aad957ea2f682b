"""The translation vectors over sockets: this process plays the engine, a running gateway is driven.

    python -m tests.conformance.online GATEWAY_URL API_KEY MODEL ENGINE_PORT [FILE.jsonl] [--only ID,ID]

Configure the gateway with that engine only (127.0.0.1:ENGINE_PORT, model "glm"), retries allowed but no second replica.
Some vectors are engine failures by design: switch the breaker off for the run, or pass --pause SECONDS.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import threading
import time
import urllib.parse
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.conformance.offline import VECTORS, Answer, load, problems, upstream_bytes

MODELS = {
    "object": "list",
    "data": [{"id": "glm", "object": "model", "created": 1, "owned_by": "x", "max_model_len": 1048576}],
}
COUNT = {"tokens": list(range(33)), "count": 33, "input_tokens": 33, "max_model_len": 1048576}


class Engine(ThreadingHTTPServer):
    """Plays the engine's side of one vector at a time."""

    daemon_threads = True
    vector: dict[str, Any] | None = None

    def __init__(self, port: int) -> None:
        super().__init__(("127.0.0.1", port), Handler)
        self.sent: list[dict[str, Any]] = []


class Handler(BaseHTTPRequestHandler):
    """One connection of the gateway."""

    protocol_version = "HTTP/1.1"
    server: Engine

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        pass

    def answer(self, status: int, body: Any, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        for name, value in {
            "content-type": "application/json",
            "content-length": str(len(data)),
            **(headers or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        if self.path.startswith("/v1/models"):
            self.answer(200, MODELS)
        elif self.path in ("/health", "/v1/health/ready", "/ping", "/ready"):
            self.answer(200, {"status": "ready"})
        else:
            self.answer(404, {"detail": "Not Found"})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length") or 0)))
        vector = self.server.vector
        if vector is None:
            self.answer(503, {"error": {"message": "idle", "type": "x", "param": None, "code": 503}})
            return
        if self.path.split("?")[0].endswith(("tokenize", "count_tokens")):
            self.answer(200, COUNT)
            return
        if "model" not in body:  # a probe for routes
            self.answer(400, {"error": {"message": "Field required", "type": "BadRequestError", "code": 400}})
            return
        self.server.sent.append(body)
        given = vector.get("upstream_response") or {"status": 500, "json": {"error": {"message": "not expected"}}}
        if "upstream_sse" in vector:
            self.stream(vector)
        else:
            self.answer(given["status"], given["json"], given.get("headers"))

    def stream(self, vector: dict[str, Any]) -> None:
        quirks = vector.get("transport") or {}
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        data, step = upstream_bytes(vector), quirks.get("split_every") or 4096
        try:
            for start in range(0, len(data), step):
                piece = data[start : start + step]
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
            if quirks.get("cut"):
                time.sleep(0.2)  # so that the gateway has read what came before
                self.close_connection = True
                self.connection.close()
            else:
                self.wfile.write(b"0\r\n\r\n")
        except OSError:
            self.close_connection = True  # the gateway had enough: a stop string matched


def drive(vector: dict[str, Any], url: urllib.parse.SplitResult, key: str, model: str) -> Answer:
    """Send the vector's request through the gateway."""
    body = json.dumps(vector["request"]["body"]).replace('"MODEL"', json.dumps(model))
    headers = {"content-type": "application/json", "x-vector": vector["id"], **vector["request"].get("headers", {})}
    if vector["dialect_in"] == "messages":
        headers |= {"x-api-key": key, "anthropic-version": "2023-06-01"}
    else:
        headers["authorization"] = f"Bearer {key}"
    connection = http.client.HTTPConnection(url.hostname or "", url.port, timeout=30)
    prefix = url.path.rstrip("/").removesuffix("/v1")
    connection.request("POST", prefix + vector["request"]["path"], body.encode(), headers)
    response = connection.getresponse()
    try:
        raw = response.read()
    except http.client.IncompleteRead as cut:
        raw = cut.partial
    connection.close()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, raw)


def fails_by_design(vector: dict[str, Any]) -> bool:
    """Whether the engine's part is a failure, which a breaker may count."""
    return bool(
        (vector.get("transport") or {}).get("cut")
        or (vector.get("upstream_response") or {}).get("status", 200) >= 500
        or any("error" in chunk for chunk in vector.get("upstream_sse") or [] if isinstance(chunk, dict))
    )


def check(vector: dict[str, Any], engine: Engine, url: urllib.parse.SplitResult, key: str, model: str) -> list[str]:
    """Drive one vector; what is wrong with the outcome."""
    engine.vector, engine.sent = vector, []
    try:
        answer = drive(vector, url, key, model)
        answer.sent = engine.sent
        return problems(vector, answer)
    except (OSError, ValueError, IndexError, http.client.HTTPException) as error:
        return [f"{type(error).__name__}: {error}"]


def main() -> int:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    options.add_argument("gateway_url", type=urllib.parse.urlsplit)
    options.add_argument("api_key")
    options.add_argument("model")
    options.add_argument("engine_port", type=int)
    options.add_argument("file", nargs="?", type=Path, default=VECTORS)
    options.add_argument(
        "--only", type=lambda text: text.split(","), help="ids, or what stands before their first dash"
    )
    options.add_argument("--settle", type=float, default=3.0, help="seconds before the first vector")
    options.add_argument("--pause", type=float, default=0.0, help="seconds after vectors that are engine failures")
    given = options.parse_args()
    only = given.only
    vectors = [v for v in load(given.file) if not only or v["id"] in only or v["id"].split("-")[0] in only]
    engine = Engine(given.engine_port)
    threading.Thread(target=engine.serve_forever, daemon=True).start()
    time.sleep(given.settle)
    failed = 0
    for vector in vectors:
        errors = check(vector, engine, given.gateway_url, given.api_key, given.model)
        if fails_by_design(vector):
            time.sleep(given.pause)
        failed += bool(errors)
        print(f"{'FAIL' if errors else 'PASS'}  {vector['id']:34} {'; '.join(errors)[:260]}")
    print(f"{len(vectors) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
