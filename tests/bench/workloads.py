"""The workloads, as data, and the request bodies they send."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from pathlib import Path

CHUNKS = 64  # of every stream
TICK_US = 20_000
NONCE = "NONCE000000000000 "  # the load generator counts in its digits, so that no two bodies are equal


@dataclass(frozen=True)
class Workload:
    """One kind of load. A stream's chunk comes every `tick_us` (0: as fast as they are read)."""

    name: str
    what: str
    body: str
    connections: int
    seconds: float
    stream: bool = False
    tick_us: int = 0
    in_step: bool = False  # all streams emit on the same tick, as an engine's step does
    stagger_us: int = 0  # between the starts of two streams
    rate: float = 0.0  # requests per second; 0: closed loop
    tries: int = 1  # per round, of which the calmest counts: whoever else runs on the host decides tails of gaps

    def arguments(self) -> list[str]:
        """Arguments of the load generator."""
        flags = ["-c", str(self.connections), "-D", str(self.seconds)]
        if self.stream:
            flags += ["-s", "1", "-k", str(CHUNKS)]
        if self.stagger_us:
            flags += ["-S", str(self.stagger_us)]
        if self.rate:
            flags += ["-r", str(self.rate)]
        return flags


WORKLOADS = {
    workload.name: workload
    for workload in (
        Workload("L", "50 requests/s, 1 KB body: latency", "1k", 8, 2.0, rate=50),
        Workload("W1", "32 connections, 1 KB body", "1k", 32, 1.5),
        Workload("U", "32 connections, 1 KB body, every prompt its own", "1k-unique", 32, 1.5),
        Workload("W2", "16 connections, 100 KB body, prefix shared", "100k", 16, 1.5),
        Workload("W2u", "16 connections, 100 KB body, nothing shared", "100k-unshared", 16, 1.5),
        Workload("W3", "16 streams without delay", "1k-stream", 16, 1.0, stream=True),
        Workload("W4", "64 streams, 20 ms, staggered", "1k-stream", 64, 1.5, stream=True, tick_us=TICK_US,
                 stagger_us=TICK_US // 64, tries=4),
        Workload("W4s", "64 streams, 20 ms, in step", "1k-stream", 64, 1.0, stream=True, tick_us=TICK_US,
                 stagger_us=TICK_US // 64, in_step=True),
        Workload("W5", "4 connections, 1 MB body", "1m", 4, 1.5),
        Workload("W6", "256 streams, 20 ms, staggered", "1k-stream", 256, 1.5, stream=True, tick_us=TICK_US,
                 stagger_us=TICK_US // 256),
    )
}  # fmt: skip

_VOCABULARY = """
the of and to in is that for it as was with be by on not he his but at are this have from or had an they which one you
were her all she there would their we him been has when who will more no if out so said what up its about into than them
can only other new some could time these two may then do first any my now such like our over man me even most made after
also did many before must through
"""
_WORDS = _VOCABULARY.split()


def write_bodies(folder: Path) -> None:
    """Write every request body as FOLDER/NAME.json; the same text every time."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = random.Random(7)
    for name, size, turns, stream, nonce_at in (
        ("1k", 1024, 1, False, None),
        ("1k-stream", 1024, 1, True, None),
        ("1k-unique", 1024, 1, False, 1),
        ("100k", 100 * 1024, 39, False, -1),
        ("100k-unshared", 100 * 1024, 39, False, 1),
        ("1m", 1024 * 1024, 99, False, -1),
    ):
        (folder / f"{name}.json").write_text(_body(rng, size, turns, stream, nonce_at))


def _body(rng: random.Random, size: int, turns: int, stream: bool, nonce_at: int | None) -> str:
    length = max(16, (size - 138 - turns * 34) // turns)  # what envelope and roles take
    messages = [{"role": "system", "content": "You are a helpful assistant."}]
    messages += [{"role": "assistant" if turn % 2 else "user", "content": _text(rng, length)} for turn in range(turns)]
    if nonce_at is not None:
        messages[nonce_at]["content"] = NONCE + messages[nonce_at]["content"][len(NONCE) :]
    body: dict[str, object] = {"model": "mock-model", "stream": stream, "max_tokens": 64, "temperature": 0.7}
    if stream:
        body["stream_options"] = {"include_usage": True}
    return json.dumps({**body, "messages": messages}, separators=(",", ":"))


def _text(rng: random.Random, length: int) -> str:
    words: list[str] = []
    size = 0
    while size < length:
        words.append(rng.choice(_WORDS))
        size += len(words[-1]) + 1
    return " ".join(words)[:length]
