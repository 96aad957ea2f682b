"""Prefix hashing and the prefix index: memory, speed, and that memory stays flat.

    python -m tests.bench.bench_index [--blocks N] [--prompts N] [--json PATH]

Peers in the same run: a plain dict, and the radix tree of `ai-dynamo-runtime` when HEADRACE_DYNAMO_PYTHON names a
Python that has it. Ends with one line `PASS index: figures` or `FAIL index: figures`; the exit status says which.
Look-ups go over many different prompts in turn, so the table is not in the processor's cache. Speeds are medians over
batches of one prompt: other work on the machine shows in the tail.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import msgspec
import numpy as np

from backends.contracts import FleetSnapshot, LoadTable, Replica, ReplicaState
from tiering.chain import Chain
from tiering.events.decode import Decoder, Stored
from tiering.hashing.text import TextHasher
from tiering.index.memory import Sizes
from tiering.index.prefix import PrefixIndex
from tiering.plan import PoolKv, Prompt
from tiering.service import KvService
from tiering.truth.accuracy import Reported

CHAIN = 2048  # blocks of one prompt
LONG = 8 * CHAIN  # 16 384 blocks: a million tokens in blocks of 64
EVENT = 256  # blocks per event
TURN = 100  # blocks of one turn of a conversation, and of its system prompt
TURNS = 8
REPLICAS = 64
BLOCK = 16
BODY = 100_000  # bytes of a long conversation
LOOKUPS = 300
PEER_BLOCKS = 1_000_000
MIB = 1 << 20


@dataclass(frozen=True)
class Figure:
    """One measured figure, with its bar where there is one."""

    name: str
    value: float
    unit: str
    at_most: float | None = None
    at_least: float | None = None
    note: str = ""

    @property
    def holds(self) -> bool:
        """Whether the bar is met."""
        low = self.at_least is None or self.value >= self.at_least
        return low and (self.at_most is None or self.value <= self.at_most)


class Clock:
    """Time that the bench moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return self.now


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def median_us(work: Sequence[Callable[[], object]]) -> float:
    """Median microseconds of calls that are each made once."""
    times = []
    for call in work:
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def random_keys(count: int, source: np.random.Generator) -> np.ndarray:
    return source.integers(0, 1 << 64, count, dtype=np.uint64)


def fleet(count: int) -> list[Replica]:
    return [Replica(f"pool/{row}", "pool", "", row, ReplicaState.READY) for row in range(count)]


def index_figures(blocks: int) -> list[Figure]:
    """Fill an index with `blocks` blocks on 64 replicas, then look up."""
    source = np.random.default_rng(1)
    before = resident()
    index = PrefixIndex.create(Sizes(blocks=blocks))
    kept: list[np.ndarray] = []
    applying: list[float] = []
    chains = blocks // CHAIN
    for number in range(chains):
        keys = random_keys(CHAIN, source)
        if number % max(chains // (LOOKUPS * 8), 1) == 0 and len(kept) < LOOKUPS * 8:
            kept.append(keys)
        events = [Stored(keys[at : at + EVENT].tolist()) for at in range(0, CHAIN, EVENT)]
        started = time.perf_counter()
        index.apply(f"pool/{number % REPLICAS}", events)
        applying.append(time.perf_counter() - started)
    kept_bytes = sum(keys.nbytes for keys in kept)
    used = resident() - before - kept_bytes
    if index.live != chains * CHAIN:
        raise SystemExit(f"the index holds {index.live} of {chains * CHAIN} blocks")
    note = f"{chains * CHAIN:,} blocks on {REPLICAS} replicas"
    return [
        Figure("index memory", used / 1e6, "MB", at_most=32.0 * blocks / 1e6, note=note),
        Figure("index arrays per block", index.nbytes / blocks, "B", at_most=32.0),
        Figure(
            "apply",
            CHAIN / statistics.median(applying) / 1e6,
            "M blocks/s",
            at_least=1.0,
            note=f"events of {EVENT} blocks",
        ),
        *lookup_figures(index, kept),
        *removal_figures(index, kept),
        full_figure(index, blocks),
    ]


def full_figure(index: PrefixIndex, blocks: int) -> Figure:
    """Storing once the log is full: every block stored pushes an old one out."""
    source = np.random.default_rng(6)
    rounds = blocks // 4 // CHAIN + 16  # fill the slack first
    for _ in range(rounds):
        index.apply("pool/2", [Stored(random_keys(CHAIN, source).tolist())])
    batches = [[Stored(random_keys(CHAIN, source).tolist())] for _ in range(LOOKUPS)]
    each = median_us([lambda batch=batch: index.apply("pool/2", batch) for batch in batches])
    return Figure("apply when full", CHAIN / each, "M blocks/s", note="each pushes an old one out")


def lookup_figures(index: PrefixIndex, kept: list[np.ndarray]) -> list[Figure]:
    """Look-ups of whole prompts, of conversations, of prompts nobody has, of blocks that lie all over the log."""
    rows = index.rows(fleet(REPLICAS))
    short = [Chain(keys, BLOCK, CHAIN * BLOCK + 1) for keys in kept[:LOOKUPS]]
    per_long = LONG // CHAIN
    long = [
        Chain(np.concatenate(kept[at : at + per_long]), BLOCK, LONG * BLOCK + 1)
        for at in range(0, len(kept) - per_long + 1, per_long)
    ]
    for chain in long:
        index.apply("pool/0", [Stored(chain.keys.tolist())])
    source = np.random.default_rng(2)
    unknown = [Chain(random_keys(CHAIN, source), BLOCK, CHAIN * BLOCK) for _ in range(LOOKUPS)]
    scattered = [Chain(source.permutation(chain.keys), BLOCK, CHAIN * BLOCK + 1) for chain in short]

    turns = conversations(index, source)

    def check(chain: Chain, blocks: int) -> None:
        if index.locate(chain, rows).reach.max() != blocks * BLOCK:
            raise SystemExit("a look-up missed blocks that are there")

    check(short[0], CHAIN)
    check(long[0], LONG)
    check(turns[0], len(turns[0].keys) - TURN)

    def timed(chains: list[Chain]) -> float:
        return median_us([lambda chain=chain: index.locate(chain, rows) for chain in chains])

    return [
        Figure(f"locate {CHAIN:,} blocks", timed(short), "us", at_most=60.0),
        Figure(f"locate {LONG:,} blocks", timed(long), "us", at_most=500.0),
        Figure(
            "locate a conversation", timed(turns), "us", note=f"system prompt everywhere, {TURNS} turns on one replica"
        ),
        Figure("locate an unknown prompt", timed(unknown), "us"),
        Figure(f"locate {CHAIN:,} blocks, worst case", timed(scattered), "us", note="no two neighbours in the log"),
    ]


def conversations(index: PrefixIndex, source: np.random.Generator) -> list[Chain]:
    """Conversations that share a system prompt, each on one replica, where the next turn is not known yet."""
    system = random_keys(TURN, source)
    for number in range(REPLICAS):
        index.apply(f"pool/{number}", [Stored(system.tolist())])
    talks = [[system] for _ in range(LOOKUPS // 5)]
    for _ in range(TURNS):
        for number, talk in enumerate(talks):
            talk.append(random_keys(TURN, source))
            index.apply(f"pool/{number % REPLICAS}", [Stored(talk[-1].tolist())])
    for talk in talks:
        talk.append(random_keys(TURN, source))
    return [Chain(np.concatenate(talk), BLOCK, len(talk) * TURN * BLOCK) for talk in talks]


def removal_figures(index: PrefixIndex, kept: list[np.ndarray]) -> list[Figure]:
    """What happens when a replica goes, and what decoding costs."""
    batch = [
        {"type": "BlockStored", "block_hashes": kept[0][at : at + EVENT].tolist(), "parent_block_hash": None,
         "token_ids": list(range(EVENT * BLOCK)), "block_size": BLOCK, "lora_id": None, "medium": "GPU"}
        for at in range(0, CHAIN, EVENT)
    ]  # fmt: skip
    payload = msgspec.msgpack.encode([1.0, batch, 0])
    decoder = Decoder("vllm")
    decoding = median_us([lambda: decoder.decode(payload)] * 30)
    forget = median_us([lambda: index.forget("pool/1")])
    return [
        Figure("decode events", CHAIN / decoding, "M blocks/s", note=f"with {BLOCK} token ids a block"),
        Figure("forget a replica", forget / 1000, "ms"),
    ]


def text_figures() -> list[Figure]:
    """Text chains of long conversations. Each body was just read, as a parser leaves it."""
    source = random.Random(3)
    bodies = [source.randbytes(BODY) for _ in range(1000)]
    hasher = TextHasher()
    seed = hasher.seed("model", "tenant")

    def timed(data: list[bytes]) -> float:
        """Median of the calmest of some rounds, which lie apart because the machine's speed comes and goes."""
        medians = []
        for at in range(0, len(data), 50):
            times = []
            for body in data[at : at + 50]:
                body.count(b"\0\0\0\0")
                started = time.perf_counter()
                hasher.chain_of([body], seed)
                times.append(time.perf_counter() - started)
            medians.append(statistics.median(times))
            time.sleep(0.2)
        return min(medians) * 1e6

    first = timed(bodies)
    second = timed([body + source.randbytes(1500) for body in bodies])
    return [
        Figure("text chain of 100 KB", first, "us", at_most=25.0),
        Figure("second turn of 100 KB", second, "us", at_most=10.0),
    ]


def dict_figures() -> list[Figure]:
    """What a plain dict from key to a set of replicas costs."""
    source = np.random.default_rng(4)
    before = resident()
    table: dict[int, frozenset[int]] = {}
    owners = [frozenset({number}) for number in range(REPLICAS)]
    chains: list[list[int]] = []
    applying: list[float] = []
    for number in range(PEER_BLOCKS // CHAIN):
        hashes = random_keys(CHAIN, source).tolist()
        owner = owners[number % REPLICAS]
        started = time.perf_counter()
        for key in hashes:
            table[key] = table[key] | owner if key in table else owner
        applying.append(time.perf_counter() - started)
        if number < LOOKUPS:
            chains.append(hashes)

    def locate(keys: list[int]) -> dict[int, int]:
        alive, result = None, {}
        for depth, key in enumerate(keys):
            holders = table.get(key, frozenset())
            left = holders if alive is None else alive & holders
            for gone in (alive or frozenset()) - left:
                result[gone] = depth
            if not left:
                break
            alive = left
        return result

    used = resident() - before
    blocks = len(table)
    return [
        Figure("dict: memory per block", used / blocks, "B", note=f"{blocks:,} blocks"),
        Figure("dict: apply", CHAIN / statistics.median(applying) / 1e6, "M blocks/s"),
        Figure(f"dict: locate {CHAIN:,} blocks", median_us([lambda k=k: locate(k) for k in chains]), "us"),
    ]


def radix_figures() -> tuple[list[Figure], str]:
    """The radix tree of ai-dynamo-runtime; why not, when it is not there."""
    python = os.environ.get("HEADRACE_DYNAMO_PYTHON")
    if not python:
        return [], "HEADRACE_DYNAMO_PYTHON names no Python with ai-dynamo-runtime"
    command = [python, str(Path(__file__).with_name("peer_radix.py")), str(PEER_BLOCKS), str(CHAIN), str(REPLICAS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    if done.returncode:
        return [], f"it does not run: {done.stderr.strip().splitlines()[-1:]}"
    found = json.loads(done.stdout)
    return [
        Figure("radix tree: memory per block", found["bytes_per_block"], "B", note=f"{found['blocks']:,} blocks"),
        Figure("radix tree: apply", found["applied_per_s"] / 1e6, "M blocks/s"),
        Figure(f"radix tree: locate {CHAIN:,} blocks", found["locate_us"], "us"),
    ], ""


def flat_figures(prompts: int) -> list[Figure]:
    """Growth of the process over unique prompts that are planned, sent and observed."""
    clock = Clock()
    replicas = tuple(fleet(8))
    snapshot = FleetSnapshot(1, replicas, {"pool": replicas}, LoadTable(8))
    service = KvService(PrefixIndex.create(Sizes(blocks=200_000)), clock, [PoolKv("pool")])
    filler = random.Random(5).randbytes(6000)

    def exchange(number: int) -> None:
        clock.now += 0.01
        tenant = f"tenant-{number % 20_000}"
        prompt = Prompt("model", tenant, "chat", [b"%d " % number + filler])
        plan = service.plan(snapshot, ["pool"], prompt)
        expected = service.sent(plan, replicas[number % len(replicas)])
        service.observe(expected, Reported(0, 1500))

    settled = prompts // 10  # caps are reached by then
    for number in range(settled):
        exchange(number)
    before, started = resident(), time.perf_counter()
    for number in range(settled, settled + prompts):
        exchange(number)
    each = (time.perf_counter() - started) / prompts * 1e6
    growth = (resident() - before) / MIB
    return [
        Figure(f"growth over {prompts:,} unique prompts", growth, "MiB", at_most=20.0),
        Figure("plan, send and observe 6 KB by text", each, "us", note="every prompt new, every table full"),
    ]


def show(figures: list[Figure]) -> None:
    """A table."""
    for figure in figures:
        bar = f"<= {figure.at_most:g}" if figure.at_most is not None else ""
        bar = f">= {figure.at_least:g}" if figure.at_least is not None else bar
        verdict = "" if not bar else "ok" if figure.holds else "MISSED"
        print(f"{figure.name:38} {figure.value:10.2f} {figure.unit:11} {bar:9} {verdict:6} {figure.note}", flush=True)


def main() -> int:
    """Measure all, print, write, judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--blocks", type=int, default=10_000_000, help="blocks in the index (%(default)s)")
    parser.add_argument("--prompts", type=int, default=1_000_000, help="unique prompts for the growth (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="PATH", help="also write the figures there")
    args = parser.parse_args()
    figures: list[Figure] = []
    skipped = ""
    for measure in (
        lambda: index_figures(args.blocks),
        text_figures,
        dict_figures,
        lambda: flat_figures(args.prompts),
    ):
        figures += (new := measure())
        show(new)
    peer, skipped = radix_figures()
    figures += peer
    show(peer)
    if skipped:
        print(f"radix tree skipped: {skipped}")
    if args.json:
        args.json.write_text(json.dumps({"figures": [asdict(figure) for figure in figures], "skipped": skipped}))
    judged = [figure for figure in figures if figure.at_most is not None or figure.at_least is not None]
    passed = all(figure.holds for figure in judged)
    summary = ", ".join(f"{figure.name} {figure.value:.4g} {figure.unit}" for figure in judged)
    print(f"{'PASS' if passed else 'FAIL'} index: {summary}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
