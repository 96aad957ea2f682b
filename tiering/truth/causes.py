"""Why a prediction failed: a small decision tree over what is known of the exchange."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Cause(enum.Enum):
    """Classes of misses, as metrics and the admin API name them."""

    TEMPLATE = "template"
    TOKENIZER = "tokenizer"
    HASH_SEED = "hash_seed"
    BLOCK_SIZE = "block_size"
    SALT = "salt"
    GROUP = "group"
    LOST_EVENTS = "lost_events"
    EVICTION = "eviction"
    TEXT = "text"


class Beginning(enum.Enum):
    """What events say of the first block of the prompt."""

    UNSEEN = "unseen"  # no event has shown these ids at the beginning of a prompt
    SAME = "same"  # published under the hash we computed
    OTHER_SALT = "other_salt"  # published under another salt
    OTHER_HASH = "other_hash"  # same ids, same salt, another hash


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known when a prediction has failed. The defaults say nothing."""

    predicted: int = 0  # cached tokens
    reported: int = 0
    tokens_computed: int | None = None  # length of the prompt, by our template and tokenizer; None: looked up by text
    tokens_reported: int | None = None  # by the engine
    beginning: Beginning = Beginning.UNSEEN
    block_size_differs: bool = False  # between events and our scheme
    unknown_groups: bool = False  # events show cache groups that the pool's layout lacks
    events_lost: bool = False  # a loss since the prompt may have been stored, or no events at all
    tokenizer_agrees: bool | None = None  # our tokenizer makes the engine's ids of the engine's text
    hash_ratio: float | None = None  # share of published hashes that we reproduce


def cause_of(evidence: Evidence) -> Cause:
    """The most specific cause the evidence supports."""
    if evidence.block_size_differs:
        return Cause.BLOCK_SIZE
    if evidence.unknown_groups and evidence.predicted > evidence.reported:
        return Cause.GROUP
    if evidence.beginning is Beginning.OTHER_SALT:
        return Cause.SALT
    if evidence.beginning is Beginning.OTHER_HASH or (evidence.hash_ratio is not None and evidence.hash_ratio < 0.5):
        return Cause.HASH_SEED
    if evidence.tokenizer_agrees is False:
        return Cause.TOKENIZER
    if _other_prompt(evidence):
        return Cause.TEMPLATE
    if evidence.tokens_computed is not None and evidence.events_lost:  # a look-up by text asks no events
        return Cause.LOST_EVENTS
    return _history(evidence)


def _other_prompt(evidence: Evidence) -> bool:
    computed, reported = evidence.tokens_computed, evidence.tokens_reported
    return computed is not None and reported is not None and computed != reported


def _history(evidence: Evidence) -> Cause:
    """The keys are right: then blocks went, or came, without the index knowing in time."""
    if evidence.reported < evidence.predicted:
        return Cause.EVICTION
    if evidence.beginning is Beginning.SAME:
        return Cause.LOST_EVENTS
    # The engine had the prompt, and no event has ever shown its beginning: it is not the beginning we computed. By
    # text: prompts begin with the same tokens (of the template, of tools) whose text begins differently, or other
    # text became the same tokens.
    return Cause.TEMPLATE if evidence.tokens_computed is not None else Cause.TEXT
