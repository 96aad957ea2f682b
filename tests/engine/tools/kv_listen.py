"""Print an engine's KV events as JSON lines: {"topic", "seq", "ts", "dp_rank", "events": [...]}.

    python -m tests.engine.tools.kv_listen tcp://127.0.0.1:18101 --seconds 30 > events.jsonl
    python -m tests.engine.tools.kv_listen --replay tcp://127.0.0.1:28101 --from 0     (what it still has)

Works for vLLM and SGLang, which share the framing: [topic, sequence number (8 bytes, big-endian), msgpack batch], the
batch being [timestamp, [event maps], DP rank]. Bytes in events print as "hex:...".
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import Any

import msgspec
import zmq

END_OF_REPLAY = (b"\xff" * 8, b"")


def plain(value: Any) -> Any:
    """The same value with bytes as text, so that JSON can hold it."""
    if isinstance(value, bytes):
        return "hex:" + value.hex()
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {plain(key): plain(item) for key, item in value.items()}
    return value


def show(frames: list[bytes], raw: bool) -> None:
    """Print one batch."""
    topic, seq, payload = frames
    ts, events, *rest = msgspec.msgpack.decode(payload)
    line = {"topic": topic.decode(), "seq": int.from_bytes(seq, "big"), "ts": ts, "dp_rank": rest[0] if rest else None}
    line["events"] = plain(events)
    if raw:
        line["payload_hex"] = payload.hex()
    print(json.dumps(line), flush=True)


def listen(endpoint: str, topic: str, seconds: float, count: int, raw: bool) -> int:
    """Print what is published from now on; the number of batches."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.SUB)
    socket.connect(endpoint)
    socket.setsockopt(zmq.SUBSCRIBE, topic.encode())
    deadline, seen = time.monotonic() + seconds, 0
    while seen < count and (left := deadline - time.monotonic()) > 0:
        if socket.poll(int(min(left * 1000, 500))):
            show(socket.recv_multipart(), raw)
            seen += 1
    return seen


def replay(endpoint: str, start: int, seconds: float, raw: bool) -> int:
    """Print what the engine still has, from sequence number `start` on; the number of batches.

    DEALER, not REQ: the engine answers one request with many messages. Each begins with an empty frame.
    """
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.connect(endpoint)
    socket.send_multipart([b"", start.to_bytes(8, "big")])
    seen = 0
    while socket.poll(int(seconds * 1000)):
        _, topic, seq, payload = socket.recv_multipart()
        if (seq, payload) == END_OF_REPLAY:
            return seen
        show([topic, seq, payload], raw)
        seen += 1
    sys.exit(f"kv_listen: no end of replay from {endpoint} within {seconds} s")


def main() -> None:
    """Listen or replay, as the arguments say."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("endpoint", nargs="?", help="PUB socket of the engine")
    parser.add_argument("--topic", default="", help="only topics that begin so (all)")
    parser.add_argument("--seconds", type=float, default=10, help="stop after (10)")
    parser.add_argument("--count", type=int, default=sys.maxsize, help="stop after so many batches")
    parser.add_argument("--replay", metavar="ENDPOINT", help="ask the replay socket instead")
    parser.add_argument("--from", dest="start", type=int, default=0, help="first sequence number of the replay (0)")
    parser.add_argument("--raw", action="store_true", help="add the payload as hex")
    args = parser.parse_args()
    if bool(args.endpoint) == bool(args.replay):
        parser.error("give either an endpoint or --replay")
    if args.replay:
        seen = replay(args.replay, args.start, args.seconds, args.raw)
    else:
        seen = listen(args.endpoint, args.topic, args.seconds, args.count, args.raw)
    print(f"{seen} batches", file=sys.stderr)


if __name__ == "__main__":
    main()
