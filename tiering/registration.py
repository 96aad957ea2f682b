"""What a new pool's engines do not say: which hash, which seed, which cache groups. Read off their first events."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from tiering.chain import Layout
from tiering.events.decode import Stored
from tiering.events.verify import GroupSeen, extras_of
from tiering.hashing.scheme import Scheme
from tiering.hashing.sglang import SglangScheme
from tiering.hashing.vllm import DEFAULT_SEED, Algorithm, VllmScheme

_FULL = frozenset({"full_attention", "mla_attention", "sink_full_attention"})
_SLIDING = frozenset({"sliding_window", "sliding_window_mla", "chunked_local_attention"})
_NOT_REUSED = frozenset({"encoder_only_attention", "cross_attention"})
_ALL_BLOCKS = 1 << 30
_ALGORITHMS: tuple[Algorithm, ...] = ("sha256", "sha256_cbor")


def candidates(engine: str, block: int, seeds: Sequence[str] = ()) -> Iterable[Scheme]:
    """Schemes an engine of this kind may use, the usual ones first. `seeds`: PYTHONHASHSEED values it may have."""
    if engine != "vllm":
        return [SglangScheme(block), SglangScheme(block, bigram=True)]
    return [VllmScheme(block, algorithm, seed) for seed in (DEFAULT_SEED, "0", *seeds) for algorithm in _ALGORITHMS]


def detect(engine: str, event: Stored, seeds: Sequence[str] = ()) -> Scheme | None:
    """The scheme that makes an event's hashes of its tokens; None when no candidate does, or the event cannot tell.

    Only the beginning of a prompt tells: later blocks depend on digests that events do not carry.
    """
    extras = extras_of(event)
    if event.parent is not None or extras is None or not event.tokens or not event.block_size:
        return None
    hashes = [hash_ % (1 << 64) for hash_ in event.hashes]
    bigram = not isinstance(event.tokens[0], int)
    try:
        ids = [pair[0] for pair in event.tokens] + [event.tokens[-1][1]] if bigram else event.tokens
        tokens = np.array(ids, np.uint32)
    except (OverflowError, TypeError, ValueError, LookupError):
        return None  # what are no ids tell nothing
    for scheme in candidates(engine, event.block_size, seeds):
        if scheme.hashes(scheme.digests(tokens, extras)).tolist() == hashes:
            return scheme
    return None


def layout_of(groups: Mapping[int, GroupSeen], block: int) -> Layout:
    """Layout of the cache groups that events have shown; `block` is tokens per block.

    An unknown kind is taken for a recurrent state: a match that is too short is never wrong.
    """
    full = sorted(number for number, group in groups.items() if group.kind in _FULL)
    ignored = frozenset(number for number, group in groups.items() if group.kind in _NOT_REUSED)
    attention = full[0] if full else 0
    windows = tuple(
        (number, _window(group, block))
        for number, group in sorted(groups.items())
        if number != attention and number not in ignored
    )
    return Layout(attention, windows, ignored)


def _window(group: GroupSeen, block: int) -> int:
    if group.kind in _FULL:
        return _ALL_BLOCKS
    if group.kind in _SLIDING and group.window:
        return -(-group.window // block)
    return 1
