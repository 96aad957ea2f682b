"""KV-event batches of vLLM and SGLang: msgpack bytes in, events out.

A batch is `[timestamp, [events], dp_rank]`. An event is a map with "type" (vLLM >= 0.26, SGLang >= 0.5.23) or an array
that begins with the type: 7 fields in older versions of both, more in later ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import index
from typing import Any, ClassVar

import msgspec

from backends.contracts import Tier

# Names differ by version. A medium nobody knows is dropped: unknown beats wrong.
MEDIA: Mapping[str, Tier] = {
    "GPU": "gpu",
    "CPU": "host",
    "CPU_PINNED": "host",
    "CPU_TIER1": "host",
    "CPU_TIER2": "host",
    "FS": "fs",
    "STORAGE": "fs",
    "DISK": "fs",
    "OBJ": "remote",
    "P2P": "remote",
    "REMOTE": "remote",
    "EXTERNAL": "remote",
}

_STORED_COMMON = ("block_hashes", "parent_block_hash", "token_ids", "block_size", "lora_id", "medium")
_STORED_FIELDS = {
    "vllm": (*_STORED_COMMON, "lora_name", "extra_keys", "group_idx", "kv_cache_spec_kind",
             "kv_cache_spec_sliding_window", "locality", "ownership", "session_id"),
    "sglang": (*_STORED_COMMON, "cache_salt", "session_id", "lora_name"),
}  # fmt: skip
_COUNT_LIMIT = 1 << 31  # of numbers of groups and sizes in tokens
_REMOVED_FIELDS = ("block_hashes", "medium", "group_idx", "locality", "ownership")


class BadEventError(ValueError):
    """Bytes that are no batch of KV events."""


@dataclass(frozen=True, slots=True)
class Stored:
    """Blocks that are now in `tier`. Placeholders of lower tiers carry no tokens: they join by hash."""

    verb: ClassVar[int] = 2
    hashes: list[int]
    tier: Tier = "gpu"
    group: int = 0
    tokens: Sequence[Any] = ()  # ids, or pairs of ids from engines with EAGLE
    parent: int | None = None
    block_size: int = 0
    extra: Sequence[Sequence[Any] | None] = ()  # per block, untagged
    salt: str | None = None
    lora: str | None = None
    kind: str = ""
    window: int = 0  # tokens, of a sliding-window group


@dataclass(frozen=True, slots=True)
class Removed:
    """Blocks that are no longer in `tier`."""

    verb: ClassVar[int] = 1
    hashes: list[int]
    tier: Tier = "gpu"
    group: int = 0


@dataclass(frozen=True, slots=True)
class Cleared:
    """The GPU holds nothing any more; other tiers keep what they have."""


KvEvent = Stored | Removed | Cleared


@dataclass(frozen=True, slots=True)
class Batch:
    """What one engine step published."""

    at: float  # the engine's clock, seconds
    events: tuple[KvEvent, ...]
    rank: int | None = None
    unknown_media: int = 0  # events dropped for a medium that is in no table


class Decoder:
    """Decoder for one engine kind (`vllm`, or `sglang` and what is built on it)."""

    __slots__ = ("_decoder", "_stored")

    def __init__(self, engine: str) -> None:
        self._stored = _STORED_FIELDS["vllm" if engine == "vllm" else "sglang"]
        self._decoder = msgspec.msgpack.Decoder()

    def decode(self, payload: bytes) -> Batch:
        """One batch. Raises BadEventError when the bytes are something else."""
        try:
            at, raw, *rest = self._decoder.decode(payload)
            events = [self._event(item) for item in raw]
            rank = rest[0] if rest and rest[0] is not None else None
            known = tuple(event for event in events if event is not None)
            return Batch(float(at), known, rank, len(events) - len(known))
        except (msgspec.MsgspecError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
            raise BadEventError(f"not a batch of KV events: {type(error).__name__}") from error

    def _event(self, raw: dict[str, Any] | list[Any]) -> KvEvent | None:
        kind = raw["type"] if isinstance(raw, dict) else raw[0]
        if kind == "AllBlocksCleared":
            return Cleared()
        if kind == "BlockRemoved":
            return _removed(raw if isinstance(raw, dict) else dict(zip(_REMOVED_FIELDS, raw[1:], strict=False)))
        if kind == "BlockStored":
            return _stored(raw if isinstance(raw, dict) else dict(zip(self._stored, raw[1:], strict=False)))
        raise ValueError("unknown type of event")


def _removed(fields: dict[str, Any]) -> Removed | None:
    tier = MEDIA.get(fields.get("medium") or "GPU")
    return Removed(_hashes(fields["block_hashes"]), tier, _count(fields, "group_idx")) if tier else None


def _stored(fields: dict[str, Any]) -> Stored | None:
    tier = MEDIA.get(fields.get("medium") or "GPU")
    if tier is None:
        return None
    get = fields.get
    parent = get("parent_block_hash")
    return Stored(
        hashes=_hashes(fields["block_hashes"]),
        tier=tier,
        group=_count(fields, "group_idx"),
        tokens=_list(get("token_ids")),
        parent=None if parent is None else _hashes([parent])[0],
        block_size=_count(fields, "block_size"),
        extra=_lists(get("extra_keys")),
        salt=_text(get("cache_salt")),
        lora=_text(get("lora_name")),
        kind=_text(get("kv_cache_spec_kind")) or "",
        window=_count(fields, "kv_cache_spec_sliding_window"),
    )


def _count(fields: dict[str, Any], name: str) -> int:
    value = index(fields.get(name) or 0)
    if not 0 <= value < _COUNT_LIMIT:
        raise ValueError(f"{name} out of range")
    return value


def _list(value: Any) -> Sequence[Any]:
    if value is not None and not isinstance(value, list):
        raise TypeError("not a list")
    return value or ()


def _lists(value: Any) -> Sequence[Sequence[Any] | None]:
    lists = _list(value)
    for item in lists:
        _list(item)
    return lists


def _text(value: Any) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError("not a text")
    return value


def _hashes(raw: list[Any]) -> list[int]:
    """As integers; engines told to publish bytes send the whole digest, whose last 8 bytes are the integer."""
    if raw and isinstance(raw[0], bytes):
        return [int.from_bytes(item[-8:], "big") for item in raw]
    return [index(item) for item in raw]
