"""The prefix index against real engines: hashes, predictions, and the causes of failures."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from backends.contracts import FleetSnapshot, LoadTable, Replica, ReplicaState
from tests.engine.servers import MODEL, SGLANG, VLLM
from tiering.chain import Layout
from tiering.events.decode import KvEvent, Stored
from tiering.events.discovery import Source, sglang_sources, vllm_sources
from tiering.events.feed import EventFeed
from tiering.events.tracker import Action, Phase
from tiering.events.verify import HashCheck
from tiering.hashing.memo import ChainHasher
from tiering.hashing.scheme import Extras, Scheme
from tiering.hashing.vllm import VllmScheme
from tiering.index.memory import Sizes
from tiering.index.prefix import PrefixIndex
from tiering.plan import Expected, PoolKv, Prompt
from tiering.registration import detect
from tiering.service import KvService
from tiering.tokens import ChatTemplate, ChatTokenizer
from tiering.truth.accuracy import Change, Reported, Verdict
from tiering.truth.causes import Cause

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1800)]

EXCHANGES = int(os.environ.get("HEADRACE_TEST_KV_EXCHANGES", "60"))  # 500 in a full run: minutes on a CPU
ENGINES_DIR = Path(os.environ.get("ENGINES_DIR", Path.home() / ".cache/headrace-engines"))
MODEL_DIR = Path(os.environ.get("HEADRACE_TEST_MODEL_DIR", ENGINES_DIR / "models/smollm2-135m"))
EVENT_DELAY_S = 0.1
WORDS = [
    "river",
    "turbine",
    "channel",
    "water",
    "pressure",
    "stone",
    "valley",
    "engine",
    "winter",
    "copper",
    "signal",
    "paper",
]


class Clock:
    def monotonic(self) -> float:
        return time.monotonic()

    def time(self) -> float:
        return time.time()


@dataclass
class Bench:
    """One engine, followed, and a service that plans for it."""

    http: aiohttp.ClientSession
    url: str
    kind: str
    model: str
    source: Source
    index: PrefixIndex
    feed: EventFeed
    seen: list[KvEvent]

    def service(self, scheme: Scheme, tokenizer: ChatTokenizer) -> tuple[KvService, HashCheck]:
        check = HashCheck(scheme)
        check.see(self.seen)
        pool = PoolKv("p", ChainHasher(scheme, Layout()), tokenizer, check)
        return KvService(self.index, Clock(), [pool], lost_at=self.feed.lost_at), check

    async def ask(self, messages: list[dict], salt: str | None = None) -> tuple[str, Reported]:
        body = {"model": self.model, "messages": messages, "max_tokens": 6, "temperature": 0}
        if salt:
            body["cache_salt"] = salt
        async with self.http.post(f"{self.url}/v1/chat/completions", json=body) as response:
            assert response.status == 200, await response.text()
            answer = await response.json()
        details = answer["usage"].get("prompt_tokens_details") or {}
        text = answer["choices"][0]["message"]["content"] or ""
        return text, Reported(details.get("cached_tokens") or 0, answer["usage"]["prompt_tokens"])

    async def exchange(self, service: KvService, messages: list[dict], salt: str | None = None) -> Outcome:
        await asyncio.sleep(EVENT_DELAY_S)
        plan = service.plan(SNAPSHOT, ["p"], prompt(messages, salt))
        expected = service.sent(plan, REPLICA)
        text, reported = await self.ask(messages, salt)
        return Outcome(text, expected, reported, service.observe(expected, reported))


@dataclass
class Outcome:
    text: str
    expected: Expected
    reported: Reported
    verdict: Verdict


REPLICA = Replica("p/0", "p", "", 0, ReplicaState.READY)
SNAPSHOT = FleetSnapshot(1, (REPLICA,), {"p": (REPLICA,)}, LoadTable(1))


def prompt(messages: list[dict], salt: str | None = None) -> Prompt:
    return Prompt(
        MODEL, salt or "t", "chat", [msgspec.json.encode(messages)], messages=lambda: messages, extras=Extras(salt)
    )


def text(seed: object, words: int) -> str:
    source = random.Random(f"{seed}")
    return " ".join(source.choice(WORDS) for _ in range(words))


@pytest.fixture(params=[VLLM.name, SGLANG.name])
async def bench(request: pytest.FixtureRequest) -> AsyncIterator[Bench]:
    url = request.getfixturevalue(f"{request.param}_url")
    async with session() as http, following(http, url, request.param) as bench:
        yield bench


def session() -> aiohttp.ClientSession:
    # SGLang closes a connection after five idle seconds, which a busy machine makes of anything.
    return aiohttp.ClientSession(connector=aiohttp.TCPConnector(force_close=True))


@contextlib.asynccontextmanager
async def following(http: aiohttp.ClientSession, url: str, kind: str) -> AsyncIterator[Bench]:
    path, sources = ("/kv_event_sources", vllm_sources) if kind == VLLM.name else ("/server_info", sglang_sources)
    async with http.get(url + path) as response:
        (source,) = sources("p/0", url, await response.read())
    async with http.get(url + "/v1/models") as response:
        model = (await response.json())["data"][0]["id"]
    index = PrefixIndex.create(Sizes(blocks=100_000, sets=256, holders=64))
    seen: list[KvEvent] = []
    feed = EventFeed(index, Clock(), observe=lambda _source, events: seen.extend(events))
    feed.set_sources([source])
    task = asyncio.create_task(feed.run())
    try:
        bench = Bench(http, url, kind, model, source, index, feed, seen)
        await until(lambda: bool(feed.status()) and feed.status()[0].phase is Phase.LIVE)
        yield bench
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.02)


@pytest.fixture
def tokenizer(bench: Bench) -> ChatTokenizer:
    return ChatTokenizer.load(MODEL_DIR, Clock(), bench.kind)


async def scheme_of(bench: Bench) -> Scheme:
    """Read off the first events, as at the registration of a pool."""
    await bench.ask([{"role": "user", "content": text(random.random(), 200)}])
    await until(lambda: any(detected(bench.kind, bench.seen)))
    schemes = set(detected(bench.kind, bench.seen))
    assert len(schemes) == 1
    return schemes.pop()


def detected(kind: str, events: Sequence[KvEvent]) -> list[Scheme]:
    found = [detect(kind, event) for event in events if isinstance(event, Stored)]
    return [scheme for scheme in found if scheme is not None]


async def test_hashes_equal_those_of_the_engine(bench: Bench, tokenizer: ChatTokenizer) -> None:
    scheme = await scheme_of(bench)
    service, check = bench.service(scheme, tokenizer)
    first = [{"role": "user", "content": text(random.random(), 300)}]
    answer, _ = await bench.ask(first)
    turns = [*first, {"role": "assistant", "content": answer}, {"role": "user", "content": text("more", 200)}]
    cases = [(first, None), (first, "tenant-a"), (first, "tenant-b"), (turns, None), (turns, "tenant-a")]
    for messages, salt in cases:
        await bench.ask(messages, salt)
    await asyncio.sleep(0.5)
    for messages, salt in cases:
        here = service.prepare(["p"], prompt(messages, salt))["p"]
        assert here.tokens is not None
        assert len(here.chain.keys) >= 8
        assert bench.index.holds("p/0", here.chain.keys).all(), (salt, len(messages))
    check.see(bench.seen)
    assert check.ratio == 1.0


async def test_token_ids_equal_those_of_the_engine(bench: Bench, tokenizer: ChatTokenizer) -> None:
    messages = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": "Grüße, 世界!  Two  spaces\n\tand a tab. 👋🏽 12345"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": [{"type": "text", "text": "First."}, {"type": "text", "text": "Second."}]},
    ]
    body = {"model": bench.model, "messages": messages}
    async with bench.http.post(f"{bench.url}/tokenize", json=body) as response:
        if response.status != 200:
            pytest.skip("this engine does not tokenise chats")
        answer = await response.json()
    assert tokenizer.chat(messages).tolist() == answer["tokens"]


async def test_predictions_equal_what_the_engine_reports(bench: Bench, tokenizer: ChatTokenizer) -> None:
    service, _ = bench.service(await scheme_of(bench), tokenizer)
    run = random.random()
    systems = [text((run, "system", number), 150 + 100 * number) for number in range(3)]
    talks: list[tuple[list[dict], str | None]] = []
    wrong: list[tuple[Any, ...]] = []
    hits = 0
    for number in range(EXCHANGES):
        if len(talks) < 6 or number % 5 == 0:
            system = {"role": "system", "content": systems[number % 3]}
            talks.append(([system], f"tenant-{number}" if number % 4 == 3 else None))
        messages, salt = talks[random.Random(number).randrange(max(0, len(talks) - 6), len(talks))]
        messages.append({"role": "user", "content": text((run, number), 30 + number % 50)})
        outcome = await bench.exchange(service, messages, salt)
        messages.append({"role": "assistant", "content": outcome.text})
        hits += outcome.reported.cached > 0
        if not outcome.verdict.correct:
            wrong.append((number, outcome.expected.prediction, outcome.reported, outcome.verdict.cause))
        assert outcome.expected.prediction.tokens == outcome.reported.tokens
    assert hits > EXCHANGES / 2
    assert len(wrong) <= EXCHANGES / 100, wrong


async def broken(bench: Bench, service: KvService) -> tuple[Counter[Cause | None], list[Change]]:
    """Fifty exchanges that each repeat what the engine has cached."""
    base = [{"role": "user", "content": text(random.random(), 200)}]
    await bench.ask(base)
    causes: Counter[Cause | None] = Counter()
    changes: list[Change] = []
    for number in range(50):
        messages = [*base, {"role": "assistant", "content": "So."}, {"role": "user", "content": text(number, 60)}]
        outcome = await bench.exchange(service, messages)
        causes[outcome.verdict.cause] += 1
        changes += service.changes()
        if changes:
            break
    return causes, changes


async def test_a_broken_template_is_named_and_the_pool_demoted(bench: Bench, tokenizer: ChatTokenizer) -> None:
    scheme = await scheme_of(bench)
    source = (MODEL_DIR / "chat_template.jinja").read_text().replace("<|im_start|>", "<|im_start|> ")
    service, _ = bench.service(scheme, ChatTokenizer(tokenizer._encoder, ChatTemplate(source, Clock())))
    causes, (change,) = await broken(bench, service)
    assert (change.to, change.cause) == ("load_only", Cause.TEMPLATE)
    assert causes.most_common(1)[0][0] is Cause.TEMPLATE
    assert service.truth.demoted("p")


async def test_a_wrong_seed_is_named_and_the_pool_looked_up_by_text(vllm_url: str) -> None:
    tokenizer = ChatTokenizer.load(MODEL_DIR, Clock())
    async with session() as http, following(http, vllm_url, VLLM.name) as bench:
        scheme = await scheme_of(bench)
        assert isinstance(scheme, VllmScheme)
        service, _ = bench.service(VllmScheme(scheme.block, scheme.algorithm, "wrong"), tokenizer)
        _, changes = await broken(bench, service)
        assert (changes[0].to, changes[0].cause) == ("text", Cause.HASH_SEED)


async def test_lost_events_are_named_and_the_pool_demoted(bench: Bench, tokenizer: ChatTokenizer) -> None:
    service, _ = bench.service(await scheme_of(bench), tokenizer)
    (link,) = bench.feed._links.values()
    numbers = itertools.count(10**9)
    hear = link._hear
    # Every second batch is lost, and no replay can fill the hole.
    link.tracker._can_replay = False

    def lossy(frames: list[bytes]) -> list[Action]:
        number = next(numbers)
        return hear([frames[0], number.to_bytes(8, "big"), frames[2]]) if number % 2 else []

    link._hear = lossy  # type: ignore[method-assign]
    causes, (change,) = await broken(bench, service)
    assert (change.to, change.cause) == ("load_only", Cause.LOST_EVENTS)
    assert causes.most_common(1)[0][0] is Cause.LOST_EVENTS
