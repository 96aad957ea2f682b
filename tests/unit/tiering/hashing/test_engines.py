"""Hashes equal those of the engines: vectors from their own code, and events they published."""

from __future__ import annotations

import numpy as np
import pytest

from tests.data.kv import golden_hashes, sglang_payloads, vllm_payloads
from tiering.events.decode import Decoder, Stored
from tiering.hashing.lmcache import LmcacheScheme
from tiering.hashing.scheme import Extras, Media, Scheme
from tiering.hashing.sglang import SglangScheme
from tiering.hashing.vllm import VllmScheme

VLLM = golden_hashes("vllm")
SGLANG = golden_hashes("sglang")
LMCACHE = golden_hashes("lmcache")


def ids(tokens: list[int]) -> np.ndarray:
    return np.array(tokens, np.uint32)


def extras_of(case: dict) -> Extras:
    lora = case["lora"] or ("", "")
    return Extras(case["salt"], lora[0] or None, lora[1], tuple(Media(*item) for item in case["media"]))


@pytest.mark.parametrize("case", VLLM["cases"], ids=lambda case: f"{case['algorithm']}-{case['name']}")
def test_vllm_digests_are_those_of_its_own_code(case: dict) -> None:
    scheme = VllmScheme(VLLM["block"], case["algorithm"])
    digests = scheme.digests(ids(VLLM["tokens"]), extras_of(case))
    assert [digest.hex() for digest in digests] == case["digests"]
    assert scheme.hashes(digests).tolist() == case["hashes"]


@pytest.mark.parametrize("case", SGLANG["cases"], ids=lambda case: case["name"])
def test_sglang_digests_are_those_of_its_own_code(case: dict) -> None:
    scheme = SglangScheme(SGLANG["block"], case["bigram"])
    digests = scheme.digests(ids(SGLANG["tokens"]), Extras(case["salt"]))
    assert [digest.hex() for digest in digests] == case["digests"][:4]  # the fifth page is not full


def test_lmcache_digests_are_those_of_its_own_code() -> None:
    digests = LmcacheScheme(LMCACHE["chunk"]).digests(ids(LMCACHE["tokens"]))
    assert [digest.hex() for digest in digests] == LMCACHE["digests"]


@pytest.mark.parametrize(
    "scheme",
    [VllmScheme(16), VllmScheme(16, "sha256_cbor"), SglangScheme(16), SglangScheme(16, bigram=True), LmcacheScheme(16)],
    ids=str,
)
@pytest.mark.parametrize("extras", [Extras(), Extras(salt="s", media=(Media("i", 40, 30),))], ids=["plain", "extras"])
def test_known_digests_are_continued(scheme: Scheme, extras: Extras) -> None:
    tokens = np.arange(200, dtype=np.uint32)
    whole = scheme.digests(tokens, extras)
    assert scheme.digests(tokens, extras, whole[:5]) == whole
    assert scheme.digests(tokens[:100], extras) == whole[: len(scheme.digests(tokens[:100], extras))]
    assert len(set(scheme.hashes(whole).tolist())) == len(whole)


def published(payloads: list[tuple[int, bytes]], engine: str) -> list[Stored]:
    events = [event for _, payload in payloads for event in Decoder(engine).decode(payload).events]
    return [event for event in events if isinstance(event, Stored) and event.tokens]


def check(events: list[Stored], scheme: Scheme) -> int:
    digests: dict[int, bytes] = {}
    checked = 0
    for event in events:
        salt = event.salt or (str(event.extra[0][0]) if event.extra and event.extra[0] else None)
        if event.parent is None:
            chain = scheme.digests(ids(list(event.tokens)), Extras(salt))
        elif event.parent in digests:
            # Any tokens stand in for those before: their digests are known.
            before = ids([0] * scheme.block)
            chain = scheme.digests(np.concatenate((before, ids(list(event.tokens)))), known=[digests[event.parent]])[1:]
        else:
            continue
        hashes = [int(value) for value in scheme.hashes(chain)]
        assert hashes == [value % (1 << 64) for value in event.hashes]
        digests |= dict(zip(event.hashes, chain, strict=True))
        checked += len(hashes)
    return checked


def by_process(payloads: list[tuple[int, bytes]]) -> list[list[tuple[int, bytes]]]:
    """A capture holds several servers' events one after the other; each counts from 0, or is joined late."""
    runs: list[list[tuple[int, bytes]]] = []
    for seq, payload in payloads:
        if not runs or seq <= runs[-1][-1][0]:
            runs.append([])
        runs[-1].append((seq, payload))
    return runs


@pytest.mark.parametrize("name", ["vllm_events", "vllm_offload_events"])
def test_every_captured_vllm_event_is_reproduced(name: str) -> None:
    schemes = [VllmScheme(32, algorithm, "0") for algorithm in ("sha256_cbor", "sha256")]
    for run in by_process(vllm_payloads(name)):
        events = published(run, "vllm")
        roots = {event.hashes[0]: event for event in events if event.parent is None and not (event.extra or [0])[0]}
        (head, root), *_ = roots.items()
        own = [s for s in schemes if s.hashes(s.digests(ids(list(root.tokens[:32]))))[0] == head]
        assert len(own) == 1
        assert check(events, own[0]) == sum(len(event.hashes) for event in events)


def test_every_captured_sglang_event_is_reproduced() -> None:
    assert check(published(sglang_payloads(), "sglang"), SglangScheme(16)) == 6
