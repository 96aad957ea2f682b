from __future__ import annotations

import json
import random

import numpy as np
import pytest

from backends.contracts import FleetSnapshot, Load, LoadTable, Replica, ReplicaState
from tests.unit.tiering.test_tokens import CHATML, encoder
from tiering.chain import Layout
from tiering.events.decode import Stored
from tiering.events.verify import HashCheck
from tiering.hashing.memo import ChainHasher
from tiering.hashing.scheme import Extras
from tiering.hashing.vllm import VllmScheme
from tiering.index.memory import Sizes
from tiering.index.prefix import PrefixIndex
from tiering.plan import PoolKv, Prompt
from tiering.service import KvService
from tiering.tokens import ChatTemplate, ChatTokenizer
from tiering.truth.accuracy import Reported
from tiering.truth.causes import Cause

SCHEME = VllmScheme(16, "sha256_cbor", "0")


class Clock:
    now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def fleet() -> FleetSnapshot:
    rows = [("exact", 0), ("exact", 1), ("plain", 0)]
    replicas = tuple(
        Replica(f"{pool}/{number}", pool, "", row, ReplicaState.READY, load=Load(kv_capacity_tokens=50_000))
        for row, (pool, number) in enumerate(rows)
    )
    by_pool = {pool: tuple(r for r in replicas if r.pool == pool) for pool in ("exact", "plain")}
    return FleetSnapshot(1, replicas, by_pool, LoadTable(3))


FLEET = fleet()


def words(seed: int, count: int = 800) -> str:
    source = random.Random(seed)
    return " ".join(source.choice(["water", "river", "turbine", "stone", "hello"]) for _ in range(count))


def prompt(seed: int = 1, *, salt: str | None = None, tenant: str = "t", more: str = "") -> Prompt:
    messages = [{"role": "user", "content": words(seed) + more}]
    raw = [json.dumps(message).encode() for message in messages]
    return Prompt("m", tenant, "chat", raw, messages=lambda: messages, extras=Extras(salt))


class Engine:
    """What the exact pool's engine does: template, tokenizer and hash of its own."""

    def __init__(self, scheme: VllmScheme = SCHEME, template: str = CHATML) -> None:
        self.scheme = scheme
        self.tokenizer = ChatTokenizer(encoder(), ChatTemplate(template, Clock()))
        self.cached: set[int] = set()

    def run(self, request: Prompt) -> tuple[Reported, list[Stored]]:
        assert request.messages is not None
        tokens = self.tokenizer.chat(request.messages())
        hashes = self.scheme.hashes(self.scheme.digests(tokens, request.extras)).tolist()
        block = self.scheme.block
        usable = hashes[: (len(tokens) - 1) // block]
        hits = next((i for i, h in enumerate(usable) if h not in self.cached), len(usable))
        new = [h for h in hashes if h not in self.cached]
        self.cached |= set(hashes)
        if not new:
            return Reported(hits * block, len(tokens)), []
        first = len(hashes) - len(new)
        salt = request.extras.salt
        event = Stored(
            new, tokens=tokens[first * block : len(hashes) * block].tolist(), block_size=block,
            parent=hashes[first - 1] if first else None,
            extra=[[salt] if salt and not first else None, *[None] * (len(new) - 1)], kind="full_attention",
        )  # fmt: skip
        return Reported(hits * block, len(tokens)), [event]


class World:
    def __init__(self, engine: Engine | None = None, *, scheme: VllmScheme = SCHEME, template: str = CHATML) -> None:
        self.engine = engine or Engine()
        self.clock = Clock()
        self.index = PrefixIndex.create(Sizes(blocks=20_000, sets=256, holders=64))
        self.check = HashCheck(scheme)
        tokenizer = ChatTokenizer(encoder(), ChatTemplate(template, self.clock))
        exact = PoolKv("exact", ChainHasher(scheme, Layout()), tokenizer, self.check)
        self.lost: float | None = None
        self.deaf = False
        self.service = KvService(self.index, self.clock, [exact, PoolKv("plain")], lost_at=lambda _replica: self.lost)

    def exchange(self, request: Prompt) -> object:
        plan = self.service.plan(FLEET, ["exact"], request)
        expected = self.service.sent(plan, FLEET.replicas[0])
        reported, events = self.engine.run(request)
        if not self.deaf:
            self.index.apply("exact/0", events)
            self.check.see(events)
        return self.service.observe(expected, reported)

    def conversation(self, number: int) -> list[Prompt]:
        return [prompt(number, more=" and then " * turn) for turn in range(6)]


def test_an_exact_pool_predicts_what_the_engine_reports() -> None:
    world = World()
    for number in range(10):
        for request in world.conversation(number % 3):
            verdict = world.exchange(request)
            assert verdict.correct
    assert world.service.truth.accuracy("exact") == 1.0
    assert world.check.ratio == 1.0
    assert world.service.changes() == []


def test_located_columns_are_those_of_the_snapshot() -> None:
    world = World()
    world.exchange(prompt(1))
    plan = world.service.plan(FLEET, ["exact", "plain"], prompt(1))
    tokens = len(plan.pools["exact"].prompt.tokens)
    assert plan.located.reach[0].tolist() == [(tokens - 1) // 16 * 16, 0, 0]
    assert world.service.plan(FLEET, ["exact"], prompt(1, salt="other")).located.reach.max() == 0


def test_a_pool_without_events_is_known_by_what_was_sent() -> None:
    world = World()
    plan = world.service.plan(FLEET, ["plain"], prompt(1))
    assert plan.located.reach.max() == 0
    expected = world.service.sent(plan, FLEET.replicas[2])
    assert world.service.observe(expected, Reported(0, 800)).correct
    again = world.service.plan(FLEET, ["plain"], prompt(1, more=" more"))
    assert 500 < again.located.reach[0, 2] <= 1300
    assert world.service.plan(FLEET, ["plain"], prompt(1, tenant="u")).located.reach.max() == 0
    world.service.emptied("plain/0")
    assert world.service.plan(FLEET, ["plain"], prompt(1)).located.reach.max() == 0


def test_a_pool_that_has_left_is_looked_up_by_text_and_nobody_keeps_its_score() -> None:
    world = World()
    world.deaf, world.lost = True, world.clock.now
    broken(world)
    assert world.service.told == {("exact", "load_only"): 1}
    plan = world.service.plan(FLEET, ["exact"], prompt(1))
    expected = world.service.sent(plan, FLEET.replicas[0])
    world.service.set_pools([PoolKv("plain")])
    plan = world.service.plan(FLEET, ["exact", "plain"], prompt(1))
    assert {name: pool.prompt.tokens for name, pool in plan.pools.items()} == {"exact": None, "plain": None}
    assert not world.service.heavy(["exact"], prompt(1, more="long " * 50_000))
    for promised in (expected, world.service.sent(plan, FLEET.replicas[0])):
        assert not world.service.observe(promised, Reported(900, 900)).correct
    assert world.service.told == {}
    assert world.service.truth.series() == {}
    assert world.service.truth.accuracy("exact") is None


def test_confidence_falls_with_responses() -> None:
    world = World()
    for _ in range(15):
        plan = world.service.plan(FLEET, ["plain"], prompt(1))
        world.service.observe(world.service.sent(plan, FLEET.replicas[2]), Reported(0, 800))
    located = world.service.plan(FLEET, ["plain"], prompt(1)).located
    assert located.confidence is not None
    assert located.confidence[2] < 0.1
    assert located.confidence[0] == 1.0


def by_text(world: World, size: int, cached: int, tokens: int, *, count: int = 50, again: bool = False) -> list:
    """Exchanges of unlike prompts of `size` bytes in the pool without events, or of one prompt with `again`."""
    for number in range(count):
        beginning = b"0" if again else b"%d " % number
        plan = world.service.plan(FLEET, ["plain"], Prompt("m", "t", "chat", [beginning.ljust(size, b"x")]))
        world.service.observe(world.service.sent(plan, FLEET.replicas[2]), Reported(cached, tokens))
    return [(change.to, change.cause) for change in world.service.changes()]


@pytest.mark.parametrize(
    ("size", "cached", "tokens"),
    [(30, 32, 35), (30, 128, 140), (900, 224, 230), (2000, 0, 500)],
)
def test_what_the_template_puts_first_is_no_miss_of_a_text_pool(size: int, cached: int, tokens: int) -> None:
    world = World()
    assert by_text(world, size, cached, tokens) == []
    assert world.service.truth.accuracy("plain") == 1.0


@pytest.mark.parametrize(("size", "cached", "tokens"), [(900, 224, 230), (2000, 480, 500), (12_000, 2992, 3000)])
def test_the_end_of_a_prompt_behind_its_last_text_block_is_no_miss(size: int, cached: int, tokens: int) -> None:
    world = World()
    by_text(world, size, 0, tokens, count=1, again=True)
    by_text(world, size, cached, tokens, again=True)
    assert world.service.truth.accuracy("plain") == 1.0


def test_engine_blocks_larger_than_text_blocks_are_learned() -> None:
    world = World()
    by_text(world, 9000, 1632, 2250, count=2, again=True)
    assert by_text(world, 9000, 1088, 2250, count=2, again=True) == []
    assert world.service._pool("plain").block == 544
    by_text(world, 1500, 0, 375, again=True)  # the engine keeps no part of a block
    assert world.service._pool("plain").block == 544
    accuracy = world.service.truth.accuracy("plain")
    assert accuracy is not None
    assert accuracy >= 0.9


def test_text_that_tells_nothing_of_the_tokens_is_named() -> None:
    assert by_text(World(), 4000, 960, 1000) == [("load_only", Cause.TEXT)]


def test_an_engine_that_keeps_nothing_is_named_by_text_too() -> None:
    assert by_text(World(), 4000, 0, 1000, again=True) == [("load_only", Cause.EVICTION)]


def test_tokens_per_byte_are_learned() -> None:
    world = World()
    for number in range(200):
        plan = world.service.plan(FLEET, ["plain"], prompt(number))
        world.service.observe(world.service.sent(plan, FLEET.replicas[2]), Reported(0, 100))
    size = prompt(1).size
    assert world.service.plan(FLEET, ["plain"], prompt(1)).pools["plain"].prompt.chain.tokens < size / 20


def broken(world: World) -> tuple[Cause | None, list]:
    """The pool's engine has everything; we ask for it fifty times."""
    changes: list = []
    for number in range(50):
        world.exchange(prompt(number % 5, more=" more" * (number // 5)))
        changes += world.service.changes()
        if changes:
            break
    return changes[0].cause, [change.to for change in changes]


def test_a_broken_template_is_named() -> None:
    world = World(template=CHATML.replace("'\\n'", "'\\n\\n'").replace("+ '\n' +", "+ '\n\n' +"))
    assert broken(world) == (Cause.TEMPLATE, ["load_only"])
    assert world.service.truth.demoted("exact")
    assert world.service.plan(FLEET, ["exact"], prompt(1)).located.reach.max() == 0


def test_a_wrong_seed_is_named_and_text_takes_over() -> None:
    world = World(scheme=VllmScheme(16, "sha256_cbor", "1"))
    assert broken(world) == (Cause.HASH_SEED, ["text"])
    for _ in range(3):
        world.exchange(prompt(77))
    assert world.service.plan(FLEET, ["exact"], prompt(77)).located.reach[0, 0] > 0


def test_a_wrong_block_size_is_named() -> None:
    world = World(Engine(VllmScheme(32, "sha256_cbor", "0")))
    assert broken(world) == (Cause.BLOCK_SIZE, ["text"])


def test_lost_events_are_named() -> None:
    world = World()
    world.deaf = True
    world.lost = world.clock.now
    assert broken(world) == (Cause.LOST_EVENTS, ["load_only"])
    world.deaf, world.lost = False, None
    world.index.forget("exact/0")
    world.engine.cached.clear()
    for number in range(80):
        world.exchange(prompt(number % 4))
    assert [change.to for change in world.service.changes()] == ["cache"]
    assert not world.service.truth.demoted("exact")


def test_another_salt_in_the_engine_is_named() -> None:
    world = World()
    run = world.engine.run
    world.engine.run = lambda request: run(prompt_with_salt(request, "theirs"))  # type: ignore[method-assign]
    assert broken(world) == (Cause.SALT, ["load_only"])


def prompt_with_salt(request: Prompt, salt: str) -> Prompt:
    return Prompt(request.model, request.tenant, "chat", request.segments, messages=request.messages,
                  extras=Extras(salt))  # fmt: skip


def test_content_without_tokens_is_looked_up_by_text() -> None:
    world = World()
    image = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]}]
    request = Prompt("m", "t", "chat", [b"x" * 5000], messages=lambda: image)
    assert world.service.prepare(["exact"], request)["exact"].tokens is None


def test_ids_of_the_client_need_no_tokenizer() -> None:
    world = World()
    ids = np.arange(100, dtype=np.uint32)
    here = world.service.prepare(["exact"], Prompt("m", "t", "completions", [b""], token_ids=ids))["exact"]
    assert here.chain.keys.tolist() == SCHEME.hashes(SCHEME.digests(ids)).tolist()[:6]


def test_long_prompts_are_heavy_only_where_they_are_tokenised() -> None:
    world = World()
    long = Prompt("m", "t", "chat", [b"x" * 200_000], messages=list)
    assert world.service.heavy(["exact"], long)
    assert not world.service.heavy(["plain"], long)
    assert not world.service.heavy(["exact"], prompt(1))


def test_pools_of_one_deployment_share_a_chain() -> None:
    world = World()
    one = world.service._pools["exact"]
    world.service._pools["plain"] = PoolKv("plain", one.hasher, one.tokenizer, one.check)
    prepared = world.service.prepare(["exact", "plain"], prompt(1))
    assert prepared["exact"].chain is prepared["plain"].chain
    assert prepared["plain"].pool.name == "plain"
