from __future__ import annotations

import numpy as np
import pytest

from tests.data.kv import vllm_payloads
from tiering.events.decode import Decoder, Stored
from tiering.events.verify import HashCheck
from tiering.hashing.scheme import Extras
from tiering.hashing.vllm import VllmScheme
from tiering.registration import detect

SCHEME = VllmScheme(16, "sha256_cbor", "0")


def event(tokens: list[int], scheme: VllmScheme = SCHEME, salt: str | None = None) -> Stored:
    hashes = scheme.hashes(scheme.digests(np.array(tokens, np.uint32), Extras(salt))).tolist()
    extra = [[salt] if salt else None] + [None] * (len(hashes) - 1)
    return Stored(
        hashes, tokens=tokens[: 16 * len(hashes)], block_size=scheme.block, extra=extra, kind="full_attention"
    )


def prompt(seed: int, length: int = 64) -> list[int]:
    return np.random.default_rng(seed).integers(0, 50_000, length).tolist()


def test_equal_hashes_give_a_ratio_of_one() -> None:
    check = HashCheck(SCHEME)
    assert check.ratio is None
    assert check.trusted
    check.see([event(prompt(seed), salt="s" if seed % 2 else None) for seed in range(10)])
    assert check.ratio == 1.0
    assert check.trusted


@pytest.mark.parametrize("tokens", [[1 << 40], [-1], [1, "x"], [1, None], [[1, 2]], ["x"], [[]]])
def test_what_are_no_token_ids_proves_nothing(tokens: list[object]) -> None:
    check, odd = HashCheck(SCHEME), Stored([1], tokens=tokens, block_size=16)
    check.see([odd, Stored([], tokens=[1] * 16, block_size=16)])
    assert (check.ratio, check.trusted) == (None, True)
    assert detect("vllm", odd) is None


def test_blocks_behind_a_known_parent_are_checked_too() -> None:
    check = HashCheck(SCHEME)
    whole = event(prompt(1, 160))
    head = Stored(whole.hashes[:2], tokens=whole.tokens[:32], block_size=16)
    tail = Stored(whole.hashes[2:], tokens=whole.tokens[32:], block_size=16, parent=whole.hashes[1])
    unknown = Stored(whole.hashes[4:], tokens=whole.tokens[64:], block_size=16, parent=12345)
    check.see([head, tail, unknown])
    assert check.ratio == 1.0
    assert len(check._recent) == 10


def test_another_seed_shows_at_once() -> None:
    check = HashCheck(SCHEME)
    check.see([event(prompt(seed), VllmScheme(16, "sha256_cbor", "1")) for seed in range(3)])
    assert check.ratio == 0.0
    assert not check.trusted
    check.see([event(prompt(seed)) for seed in range(200)])
    assert check.trusted


def test_another_block_size_shows_at_once() -> None:
    check = HashCheck(SCHEME)
    check.see([event(prompt(1), VllmScheme(32, "sha256_cbor", "0"))])
    assert check.block_size == 32
    assert not check.trusted


def test_beginnings_are_kept_by_salt() -> None:
    check = HashCheck(SCHEME)
    tokens = np.array(prompt(1), np.uint32)
    plain, salted = event(prompt(1)), event(prompt(1), salt="a")
    check.see([plain, salted])
    assert check.roots(tokens) == {None: plain.hashes[0], "a": salted.hashes[0]}
    assert check.roots(np.array(prompt(2), np.uint32)) == {}
    assert check.prompts[-1] == tuple(prompt(1))


def test_what_events_cannot_tell_is_left_alone() -> None:
    check = HashCheck(SCHEME)
    base = event(prompt(1))
    check.see(
        [
            Stored(base.hashes, tokens=base.tokens, block_size=16, lora="adapter"),
            Stored(base.hashes, tokens=base.tokens, block_size=16, extra=[["image", 3], None, None, None]),
            Stored(base.hashes, tokens=base.tokens, block_size=16, kind="mamba"),
            Stored(base.hashes, tier="host"),
        ]
    )
    assert check.ratio is None
    assert len(check._recent) == 0


def test_captured_events_of_an_engine_match() -> None:
    check = HashCheck(VllmScheme(32, "sha256_cbor", "0"))
    for _, payload in vllm_payloads("vllm_offload_events"):
        check.see(Decoder("vllm").decode(payload).events)
    assert check.ratio == 1.0
    assert check.groups[0].kind == "full_attention"


def test_memory_has_a_cap() -> None:
    check = HashCheck(SCHEME, memo=100)
    check.see([event(prompt(seed), salt=str(seed)) for seed in range(300)])
    check.see([event(prompt(1), salt=str(seed)) for seed in range(100)])
    assert check._digests.weight <= 100
    assert check._roots.weight <= 100
    assert len(check.roots(np.array(prompt(1), np.uint32))) <= 16
