"""Evidence for a failed prediction, gathered from what the pool's events have shown."""

from __future__ import annotations

from dataclasses import replace

from tiering.events.verify import HashCheck
from tiering.hashing.scheme import Extras
from tiering.plan import Expected
from tiering.truth.accuracy import Reported
from tiering.truth.causes import Beginning, Evidence

_PROMPTS = 2  # beginnings of prompts that the tokenizer is tried on


def gather(expected: Expected, reported: Reported, *, events_lost: bool) -> Evidence:
    """What is known of an exchange whose prediction failed."""
    here, prediction = expected.here, expected.prediction
    evidence = Evidence(
        predicted=prediction.cached,
        reported=reported.cached,
        tokens_computed=prediction.tokens,
        tokens_reported=reported.tokens or None,
        events_lost=events_lost,
    )
    check, hasher, tokenizer = here.pool.check, here.pool.hasher, here.pool.tokenizer
    if check is None or hasher is None or here.tokens is None:
        return evidence
    prompts = check.prompts[-_PROMPTS:]
    return replace(
        evidence,
        beginning=_beginning(expected, check, expected.prompt.extras),
        block_size_differs=check.block_size not in {0, hasher.scheme.block},
        unknown_groups=bool(check.groups.keys() - hasher.layout.groups),
        tokenizer_agrees=all(map(tokenizer.agrees, prompts)) if tokenizer and prompts else None,
        hash_ratio=check.ratio,
    )


def _beginning(expected: Expected, check: HashCheck, extras: Extras) -> Beginning:
    tokens = expected.here.tokens
    roots = check.roots(tokens) if tokens is not None else {}
    if not roots:
        return Beginning.UNSEEN
    if extras.salt not in roots:
        return Beginning.OTHER_SALT
    keys = expected.here.chain.keys
    return Beginning.SAME if len(keys) and roots[extras.salt] == int(keys[0]) else Beginning.OTHER_HASH
