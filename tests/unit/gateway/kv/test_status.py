from __future__ import annotations

from collections import Counter

import msgspec

from gateway.kv.status import KvStatus, PoolStatus, shown
from tiering.events.discovery import Source
from tiering.events.feed import SourceStatus
from tiering.events.tracker import Counts, Phase
from tiering.truth.accuracy import Series
from tiering.truth.causes import Cause


def test_without_an_index_there_are_pools_and_zeros() -> None:
    out = shown(KvStatus((PoolStatus("a", "text", None, None, load_only=False),), losses=0), 5.0)
    assert out["pools"] == [
        {"name": "a", "lookup": "text", "hash_match_ratio": None, "accuracy": None, "load_only": False}
    ]
    assert (out["blocks"], out["sources"], out["series"], out["changes"]) == (0, [], [], [])


def test_everything_that_is_known_is_json() -> None:
    source = Source("a/0", 1, "tcp://h:5557")
    status = KvStatus(
        (),
        losses=2,
        blocks=7,
        sources=(SourceStatus(source, Phase.GAP, Counts(batches=9, replays=3), 90.0, None),),
        series={("a", "t", "chat"): Series(5, 4, 160, 144, 16, Counter({Cause.SALT: 1}))},
        changes={("a", "load_only"): 1},
    )
    out = msgspec.json.decode(msgspec.json.encode(shown(status, 100.0)))
    assert out["sources"] == [
        {"replica": "a/0", "rank": 1, "endpoint": "tcp://h:5557", "phase": "gap", "heard_s_ago": 10.0,
         "lost_s_ago": None, "batches": 9, "gaps": 0, "replays": 3, "restarts": 0, "forgotten": 0, "bad": 0,
         "unknown_media": 0}
    ]  # fmt: skip
    assert out["series"] == [
        {"pool": "a", "tenant": "t", "dialect": "chat", "exchanges": 5, "correct": 4, "predicted_tokens": 160,
         "reported_tokens": 144, "wrong_tokens": 16, "causes": {"salt": 1}}
    ]  # fmt: skip
    assert out["changes"] == [{"pool": "a", "to": "load_only", "count": 1}]
