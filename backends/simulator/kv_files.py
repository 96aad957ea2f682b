"""The fs tier as real files under a root, named as the engines name them. What lies there is what is cached."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Protocol

from backends.simulator.kvcache import Block

_PLACEHOLDER = b"\0" * 64


class Layout(Protocol):
    """Where the file of a block lies."""

    def path(self, digest: bytes) -> Path:
        """The file of one block."""
        ...


class VllmLayout:
    """`<root>/<model>_<12 hex>_r0/<hhh>/<hh>_g0/<64 hex>.bin`, and a config.json that the 12 hex stand for."""

    def __init__(self, root: Path, model: str, block: int) -> None:
        config = {
            "blocks_per_file": 1,
            "dcp_size": 1,
            "dtype": "bfloat16",
            "inference_engine": "vllm",
            "model_name": model,
            "pcp_size": 1,
            "pp_size": 1,
            "tokens_per_hash": block,
            "tp_size": 1,
        }
        mark = hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:12]
        name = f"{model.replace('/', '_')}_{mark}"
        self._folder = root / f"{name}_r0"
        (root / name).mkdir(parents=True, exist_ok=True)
        (root / name / "config.json").write_text(json.dumps(config, sort_keys=True))

    def path(self, digest: bytes) -> Path:
        """The file of one block."""
        name = digest.hex()
        return self._folder / name[:3] / f"{name[3:5]}_g0" / f"{name}.bin"


class SglangLayout:
    """`<root>/<64 hex>_<model>_<tp rank>_<tp size>.bin`, all in one folder."""

    def __init__(self, root: Path, model: str) -> None:
        root.mkdir(parents=True, exist_ok=True)
        self._root = root
        self._suffix = f"_{model.replace('/', '-')}_0_1.bin"

    def path(self, digest: bytes) -> Path:
        """The file of one block."""
        return self._root / f"{digest.hex()}{self._suffix}"


class FileStore:
    """Blocks of the fs tier as small placeholder files; other processes may add and delete them at any time."""

    __slots__ = ("_layout",)

    def __init__(self, layout: Layout) -> None:
        self._layout = layout

    def __contains__(self, block: Block) -> bool:
        return self._layout.path(block).exists()

    def put(self, block: Block) -> list[Block]:
        """Write the file unless it exists, temporary name first; nothing is ever evicted."""
        path = self._layout.path(block)
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary = path.with_name(f"{path.name}.{os.getpid()}.tmp")
            temporary.write_bytes(_PLACEHOLDER)
            temporary.replace(path)
        return []
