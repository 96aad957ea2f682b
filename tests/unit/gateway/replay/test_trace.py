"""Reading traces: three formats, compressed or not, and errors that say where."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path

import pytest

from gateway.replay.trace import TraceError, read_trace

MOONCAKE = (
    '{"timestamp": 3000, "input_length": 1500, "output_length": 20, "hash_ids": [7, 8, 9]}\n'
    '{"timestamp": 1000, "input_length": 600, "output_length": 0, "hash_ids": [7, 8]}\n'
)
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16 18:17:04.5319600,3180,8\n"
)
OWN = (
    '{"start_s": 5.0, "prompt_tokens": 900, "output_tokens": 4, "blocks": [1, 2], "block_tokens": 256,'
    ' "tenant": "x", "session": "s", "model": "glm", "priority": 2, "replica": "a/1"}\n'
    '\n{"start_s": 5.5, "prompt_tokens": 10, "output_tokens": 1, "block_tokens": 256}\n'
)


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_mooncake_is_read_in_time_order_from_zero(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "t.jsonl", MOONCAKE))
    assert [(a.at_s, a.prompt_tokens, a.output_tokens, a.blocks) for a in trace.arrivals] == [
        (0.0, 600, 1, (7, 8)),
        (2.0, 1500, 20, (7, 8, 9)),
    ]
    assert trace.block_tokens == 512


def test_azure_has_no_prefixes(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "t.csv", AZURE))
    assert [(round(a.at_s, 3), a.prompt_tokens, a.blocks) for a in trace.arrivals] == [
        (0.0, 4808, ()),
        (0.552, 3180, ()),
    ]


def test_our_own_export_keeps_everything(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "t.jsonl", OWN))
    first = trace.arrivals[0]
    assert (first.tenant, first.session, first.model, first.priority, first.served_by) == ("x", "s", "glm", 2, "a/1")
    assert (first.blocks, trace.block_tokens, trace.seconds) == ((1, 2), 256, 0.5)


def test_compressed_traces(tmp_path: Path) -> None:
    plain = read_trace(write(tmp_path, "t.jsonl", MOONCAKE)).arrivals
    with gzip.open(tmp_path / "t.jsonl.gz", "wt") as file:
        file.write(MOONCAKE)
    with lzma.open(tmp_path / "t.jsonl.xz", "wt") as file:
        file.write(MOONCAKE)
    assert read_trace(tmp_path / "t.jsonl.gz").arrivals == plain
    assert read_trace(tmp_path / "t.jsonl.xz").arrivals == plain


def test_faster_and_fewer(tmp_path: Path) -> None:
    trace = read_trace(write(tmp_path, "t.jsonl", MOONCAKE))
    assert trace.faster(4.0).seconds == 0.5
    assert len(trace.first(1).arrivals) == 1


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("", "empty"),
        ("hello\n", "line 1 is neither JSON nor a known CSV header"),
        ('{"a": 1}\n', "none of the keys"),
        (MOONCAKE + '{"timestamp": 1}\n', "line 3"),
        (AZURE + "yesterday,1,2\n", "line 4"),
        (OWN + '{"start_s": 6, "prompt_tokens": 1, "output_tokens": 1}\n', "block_tokens must be the same"),
        ("TIMESTAMP,ContextTokens,GeneratedTokens\n", "no exchange"),
    ],
)
def test_what_is_wrong_and_where(tmp_path: Path, text: str, where: str) -> None:
    with pytest.raises(TraceError, match=where):
        read_trace(write(tmp_path, "t.jsonl", text))
