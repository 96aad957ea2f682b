"""A collector for tests: receives OTLP/HTTP on loopback and keeps the spans."""

from __future__ import annotations

import gzip
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span

Attributes = dict[str, Any]


def plain(value: AnyValue) -> Any:
    """A protobuf attribute value as a Python one."""
    kind = value.WhichOneof("value")
    if kind == "array_value":
        return [plain(item) for item in value.array_value.values]
    return getattr(value, kind) if kind else None


def attributes(span: Span | Span.Event) -> Attributes:
    """Attributes of a span or an event."""
    return {pair.key: plain(pair.value) for pair in span.attributes}


class Collector:
    """What a collector on `url` has received. `status` and `delay_s` make it refuse or dawdle."""

    def __init__(self) -> None:
        self.url = ""
        self.status = 200
        self.delay_s = 0.0
        self.requests = 0  # refused ones too
        self.resource: Attributes = {}
        self.bodies: list[bytes] = []
        self._spans: list[Span] = []
        self._changed = threading.Condition()

    def take(self, path: str, body: bytes) -> None:
        """Keep one export."""
        assert path == "/v1/traces"
        export = ExportTraceServiceRequest.FromString(body)
        with self._changed:
            self.bodies.append(body)
            for resource in export.resource_spans:
                self.resource = {pair.key: plain(pair.value) for pair in resource.resource.attributes}
                self._spans += [span for scope in resource.scope_spans for span in scope.spans]
            self._changed.notify_all()

    @property
    def spans(self) -> list[Span]:
        """All spans so far."""
        with self._changed:
            return list(self._spans)

    def wait(self, count: int, timeout_s: float = 10.0) -> list[Span]:
        """Block until `count` spans have come; fails the test when they do not."""
        deadline = time.monotonic() + timeout_s
        with self._changed:
            while len(self._spans) < count:
                left = deadline - time.monotonic()
                assert left > 0, f"{len(self._spans)} of {count} spans came: {[span.name for span in self._spans]}"
                self._changed.wait(left)
            return list(self._spans)

    def trace(self, trace_id: str) -> list[Span]:
        """The spans of one trace, ordered by start."""
        found = [span for span in self.spans if span.trace_id.hex() == trace_id]
        return sorted(found, key=lambda span: span.start_time_unix_nano)


@contextmanager
def collector() -> Iterator[Collector]:
    """Run a collector on a free port of loopback."""
    sink = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            sink.requests += 1
            time.sleep(sink.delay_s)
            if sink.status == 200:
                sink.take(self.path, body)
            self.send_response(sink.status)
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, *args: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    sink.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
    thread.start()
    try:
        yield sink
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
