"""The radix tree of `ai-dynamo-runtime`, measured beside our index. Runs in an environment of its own that has it.

    PYTHON peer_radix.py BLOCKS CHAIN REPLICAS     prints one line of JSON

No import of the repository: that environment has nothing else.
"""

import json
import random
import statistics
import sys
import time
from pathlib import Path

from dynamo._core import RadixTree

EVENT_BLOCKS = 256
LOOKUPS = 60


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


def events(chain: list[int], number: int) -> list[bytes]:
    """A chain as the tree wants it stored, a few hundred blocks an event."""
    result = []
    for start in range(0, len(chain), EVENT_BLOCKS):
        blocks = [{"block_hash": key, "tokens_hash": key} for key in chain[start : start + EVENT_BLOCKS]]
        parent = chain[start - 1] if start else None
        data = {"stored": {"parent_hash": parent, "blocks": blocks}}
        result.append(json.dumps({"event_id": number, "data": data}).encode())
    return result


def main() -> None:
    """Fill, look up, print."""
    total, length, replicas = map(int, sys.argv[1:])
    source = random.Random(1)
    tree, before, applying, kept = RadixTree(), resident(), [], []
    chains = total // length
    for number in range(chains):
        chain = [source.getrandbits(63) for _ in range(length)]
        if number % max(chains // LOOKUPS, 1) == 0:
            kept.append(chain)
        stored = events(chain, number)
        started = time.perf_counter()
        for event in stored:
            tree.apply_event(number % replicas, event)
        applying.append(time.perf_counter() - started)
    times = []
    for chain in kept:
        started = time.perf_counter()
        found = tree.find_matches(chain)
        times.append(time.perf_counter() - started)
    if max(found.scores.values(), default=0) != length:
        raise SystemExit(f"the tree found {found.scores} of {length} blocks")
    stored_blocks = chains * length
    result = {
        "blocks": stored_blocks,
        "bytes_per_block": (resident() - before) / stored_blocks,
        "applied_per_s": length / statistics.median(applying),
        "locate_us": statistics.median(times) * 1e6,
    }
    print(json.dumps(result))


if __name__ == "__main__":
    main()
