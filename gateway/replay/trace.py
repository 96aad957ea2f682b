"""Recorded traffic, whatever its format: when each prompt came, how long it was, which prefix it shared."""

from __future__ import annotations

import csv
import gzip
import lzma
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO, TypeVar

import msgspec

MOONCAKE_BLOCK_TOKENS = 512


class TraceError(ValueError):
    """The file is no trace we know; the message says where."""


@dataclass(frozen=True, slots=True)
class Arrival:
    """One exchange of the past. Equal `blocks` ids mean equal prefixes of `block_tokens` tokens each."""

    at_s: float  # from the start of the trace
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    tenant: str = ""
    session: str = ""
    model: str = ""
    priority: int = 0
    served_by: str = ""  # replica that served it then


@dataclass(frozen=True, slots=True)
class Trace:
    """Arrivals in time order."""

    name: str
    arrivals: tuple[Arrival, ...]
    block_tokens: int = MOONCAKE_BLOCK_TOKENS

    @property
    def seconds(self) -> float:
        """From the first to the last arrival."""
        return self.arrivals[-1].at_s - self.arrivals[0].at_s if self.arrivals else 0.0

    def faster(self, factor: float) -> Trace:
        """The same traffic in 1 / factor of the time."""
        return replace(self, arrivals=tuple(replace(a, at_s=a.at_s / factor) for a in self.arrivals))

    def first(self, count: int) -> Trace:
        """The first `count` arrivals."""
        return replace(self, arrivals=self.arrivals[:count])


def read_trace(path: Path) -> Trace:
    """Read a trace, plain or compressed (.gz, .xz). Raises TraceError for a format we do not know, OSError for no file.

    Formats: our own export (one JSON object a line with `start_s`), Mooncake (`timestamp`, `hash_ids`), Azure
    (`TIMESTAMP,ContextTokens,GeneratedTokens`). The first line decides.
    """
    with _open(path) as lines:
        head = lines.readline()
        if not head.strip():
            raise TraceError(f"{path}: empty")
        rest = _numbered(head, lines)
        reader = _reader(path, head)
        arrivals, block_tokens = reader(path, rest)
    if not arrivals:
        raise TraceError(f"{path}: no exchange in it")
    arrivals.sort(key=lambda arrival: arrival.at_s)
    start = arrivals[0].at_s
    return Trace(path.name, tuple(replace(a, at_s=a.at_s - start) for a in arrivals), block_tokens)


T = TypeVar("T")
Lines = Iterator[tuple[int, str]]
Reader = Callable[[Path, Lines], tuple[list[Arrival], int]]


def _open(path: Path) -> TextIO:
    if path.suffix == ".gz":
        return gzip.open(path, "rt", encoding="utf-8")
    if path.suffix == ".xz":
        return lzma.open(path, "rt", encoding="utf-8")
    return path.open(encoding="utf-8")


def _numbered(head: str, rest: Iterable[str]) -> Lines:
    yield 1, head
    for number, line in enumerate(rest, 2):
        if line.strip():
            yield number, line


def _reader(path: Path, head: str) -> Reader:
    if head.startswith("TIMESTAMP,"):
        return _azure
    try:
        keys = msgspec.json.decode(head, type=dict[str, object]).keys()
    except msgspec.DecodeError:
        raise TraceError(f"{path}: line 1 is neither JSON nor a known CSV header") from None
    if "timestamp" in keys and "input_length" in keys:
        return _mooncake
    if "start_s" in keys:
        return _own
    raise TraceError(f"{path}: line 1 has none of the keys of a known format (start_s; timestamp and input_length)")


class _Mooncake(msgspec.Struct):
    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()


class Exported(msgspec.Struct, omit_defaults=True):
    """One line of our own export."""

    start_s: float
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[int, ...] = ()
    block_tokens: int = MOONCAKE_BLOCK_TOKENS
    tenant: str = ""
    session: str = ""
    model: str = ""
    priority: int = 0
    replica: str = ""


def _mooncake(path: Path, lines: Lines) -> tuple[list[Arrival], int]:
    decoder = msgspec.json.Decoder(_Mooncake)
    out = []
    for number, line in lines:
        row = _decoded(decoder, path, number, line)
        out.append(Arrival(row.timestamp / 1e3, row.input_length, max(1, row.output_length), row.hash_ids))
    return out, MOONCAKE_BLOCK_TOKENS


def _own(path: Path, lines: Lines) -> tuple[list[Arrival], int]:
    decoder = msgspec.json.Decoder(Exported)
    out: list[Arrival] = []
    sizes: set[int] = set()
    for number, line in lines:
        row = _decoded(decoder, path, number, line)
        sizes.add(row.block_tokens)
        out.append(
            Arrival(
                row.start_s,
                row.prompt_tokens,
                max(1, row.output_tokens),
                row.blocks,
                row.tenant,
                row.session,
                row.model,
                row.priority,
                row.replica,
            )
        )
    if len(sizes) > 1:
        raise TraceError(f"{path}: block_tokens must be the same on every line, found {sorted(sizes)}")
    return out, sizes.pop() if sizes else MOONCAKE_BLOCK_TOKENS


def _decoded(decoder: msgspec.json.Decoder[T], path: Path, number: int, line: str) -> T:
    try:
        return decoder.decode(line)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise TraceError(f"{path}: line {number}: {error}") from None


def _azure(path: Path, lines: Lines) -> tuple[list[Arrival], int]:
    out = []
    rows = csv.DictReader(line for _, line in lines)
    for number, row in enumerate(rows, 2):
        try:
            at = datetime.fromisoformat(row["TIMESTAMP"][:26]).replace(tzinfo=UTC)
            prompt, output = int(row["ContextTokens"]), int(row["GeneratedTokens"])
        except (KeyError, TypeError, ValueError) as error:
            raise TraceError(f"{path}: line {number}: {error}") from None
        out.append(Arrival(at.timestamp(), max(1, prompt), max(1, output)))
    return out, MOONCAKE_BLOCK_TOKENS
