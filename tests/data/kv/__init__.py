"""KV events captured from engines on a CPU, and block hashes their own code computed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import zstandard

HERE = Path(__file__).parent


def vllm_payloads(name: str) -> list[tuple[int, bytes]]:
    """(sequence number, msgpack batch) as vLLM 0.32 published them."""
    text = zstandard.ZstdDecompressor().decompress((HERE / f"{name}.jsonl.zst").read_bytes()).decode()
    lines = [json.loads(line) for line in text.splitlines()]
    return [(line["seq"], bytes.fromhex(line["payload"])) for line in lines]


def sglang_payloads() -> list[tuple[int, bytes]]:
    """The same from SGLang 0.5.23, page size 16."""
    lines = [json.loads(line) for line in (HERE / "sglang_events.jsonl").read_text().splitlines()]
    return [(line["seq"], msgspec.msgpack.encode(line["batch"])) for line in lines]


def golden_hashes(engine: str) -> Any:
    """Token ids and digests from the code of vLLM 0.32, SGLang 0.5.23 or LMCache 0.5.6."""
    return json.loads((HERE / "hashes.json").read_text())[engine]
