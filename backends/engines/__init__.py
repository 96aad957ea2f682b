"""Engine kinds: one file each, registered in `builtin`."""

from __future__ import annotations

from backends.engines.base import EngineKind, EngineSpec, Registry
from backends.engines.nim import Nim
from backends.engines.sglang import Sglang
from backends.engines.vllm import Vllm

__all__ = ["EngineKind", "EngineSpec", "Registry", "builtin"]


def builtin() -> Registry:
    """A fresh registry with the kinds that ship: vllm, sglang, nim."""
    registry = Registry()
    registry.register(Vllm())
    registry.register(Sglang())
    registry.register(Nim())
    return registry
