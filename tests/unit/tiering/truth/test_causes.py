from __future__ import annotations

import pytest

from tiering.truth.causes import Beginning, Cause, Evidence, cause_of


@pytest.mark.parametrize(
    ("evidence", "cause"),
    [
        (Evidence(0, 100, block_size_differs=True, tokenizer_agrees=False), Cause.BLOCK_SIZE),
        (Evidence(100, 0, unknown_groups=True), Cause.GROUP),
        (Evidence(0, 100, beginning=Beginning.OTHER_SALT), Cause.SALT),
        (Evidence(0, 100, beginning=Beginning.OTHER_HASH), Cause.HASH_SEED),
        (Evidence(0, 100, hash_ratio=0.1), Cause.HASH_SEED),
        (Evidence(0, 100, tokens_computed=10, tokens_reported=11, tokenizer_agrees=False), Cause.TOKENIZER),
        (Evidence(0, 100, tokens_computed=10, tokens_reported=11, tokenizer_agrees=True), Cause.TEMPLATE),
        (Evidence(0, 100, tokens_computed=10, tokens_reported=10), Cause.TEMPLATE),
        (Evidence(0, 100, tokens_computed=10, tokens_reported=10, events_lost=True), Cause.LOST_EVENTS),
        (Evidence(0, 100, tokens_computed=10, beginning=Beginning.SAME), Cause.LOST_EVENTS),
        (Evidence(100, 0, beginning=Beginning.SAME), Cause.EVICTION),
        (Evidence(100, 0), Cause.EVICTION),
        (Evidence(0, 100), Cause.TEXT),
        (Evidence(0, 100, events_lost=True), Cause.TEXT),
        (Evidence(100, 0, events_lost=True), Cause.EVICTION),
    ],
)
def test_the_most_specific_cause_is_named(evidence: Evidence, cause: Cause) -> None:
    assert cause_of(evidence) is cause
