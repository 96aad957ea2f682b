"""A tiny OpenTelemetry trace collector on loopback: every span becomes one JSON line.

    otlp_sink.py --out spans.jsonl --grpc-port 4317 --http-port 4318

gRPC and HTTP/protobuf (POST /v1/traces) at once; a port of 0 switches one off. Runs until it is terminated. Lines look
like {"resource": {...}, "scope": "...", "name", "traceId", "spanId", "parentSpanId", "kind", "start_ns", "end_ns",
"attributes": {...}, "status": ...}. Needs grpcio and opentelemetry-proto: run it with the Python of either engine
($ENGINES_DIR/vllm/bin/python). Engines export there with `serve-*.sh --otlp HOST:PORT`.
"""

from __future__ import annotations

import argparse
import gzip
import json
import signal
import sys
import threading
from concurrent import futures
from contextlib import ExitStack
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, TextIO

import grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2_grpc import (
    TraceServiceServicer,
    add_TraceServiceServicer_to_server,
)


def any_value(value: Any) -> Any:
    """An OTLP AnyValue as plain Python; bytes as hex."""
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    inner = getattr(value, kind)
    if kind == "array_value":
        return [any_value(item) for item in inner.values]
    if kind == "kvlist_value":
        return attributes(inner.values)
    return inner.hex() if kind == "bytes_value" else inner


def attributes(pairs: Any) -> dict[str, Any]:
    """OTLP key-value pairs as a dictionary."""
    return {pair.key: any_value(pair.value) for pair in pairs}


class Sink:
    """Writes spans as lines; may be called from several threads."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()

    def write(self, request: ExportTraceServiceRequest) -> None:
        """One line per span of an export."""
        for resource_spans in request.resource_spans:
            resource = attributes(resource_spans.resource.attributes)
            for scope_spans in resource_spans.scope_spans:
                for span in scope_spans.spans:
                    self._line(resource, scope_spans.scope.name, span)

    def _line(self, resource: dict[str, Any], scope: str, span: Any) -> None:
        line = {
            "resource": resource,
            "scope": scope,
            "name": span.name,
            "traceId": span.trace_id.hex(),
            "spanId": span.span_id.hex(),
            "parentSpanId": span.parent_span_id.hex(),
            "traceState": span.trace_state,
            "kind": span.kind,
            "start_ns": span.start_time_unix_nano,
            "end_ns": span.end_time_unix_nano,
            "attributes": attributes(span.attributes),
            "events": [{"name": e.name, "ns": e.time_unix_nano, **attributes(e.attributes)} for e in span.events],
            "links": [{"traceId": link.trace_id.hex(), "spanId": link.span_id.hex()} for link in span.links],
            "status": {"code": span.status.code, "message": span.status.message},
        }
        with self._lock:
            print(json.dumps(line), file=self._stream, flush=True)


def serve_grpc(sink: Sink, port: int) -> grpc.Server:
    """Take exports over gRPC; the caller stops the server."""

    class Traces(TraceServiceServicer):
        def Export(self, request: ExportTraceServiceRequest, context: Any) -> ExportTraceServiceResponse:  # noqa: N802
            sink.write(request)
            return ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(2))
    add_TraceServiceServicer_to_server(Traces(), server)
    if not server.add_insecure_port(f"127.0.0.1:{port}"):
        sys.exit(f"otlp_sink: port {port} is taken")
    server.start()
    return server


def serve_http(sink: Sink, port: int) -> None:
    """Take exports as POST /v1/traces, until the process ends."""

    class Traces(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            if self.headers.get("content-encoding") == "gzip":
                body = gzip.decompress(body)
            known = self.path == "/v1/traces"
            if known:
                sink.write(ExportTraceServiceRequest.FromString(body))
            self.send_response(200 if known else 404)
            self.send_header("content-type", "application/x-protobuf")
            self.send_header("content-length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Stay silent."""

    threading.Thread(target=ThreadingHTTPServer(("127.0.0.1", port), Traces).serve_forever, daemon=True).start()


def main() -> None:
    """Collect until SIGTERM or Ctrl-C."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, help="file to append to (standard output)")
    parser.add_argument("--grpc-port", type=int, default=4317)
    parser.add_argument("--http-port", type=int, default=4318)
    args = parser.parse_args()
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGTERM})  # before any thread starts
    with ExitStack() as stack:
        sink = Sink(stack.enter_context(args.out.open("a", encoding="utf-8")) if args.out else sys.stdout)
        if args.grpc_port:
            server = serve_grpc(sink, args.grpc_port)
            stack.callback(lambda: server.stop(grace=1).wait())
        if args.http_port:
            serve_http(sink, args.http_port)
        signal.sigwait({signal.SIGINT, signal.SIGTERM})


if __name__ == "__main__":
    main()
