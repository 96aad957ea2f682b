"""A million exchanges with unique prompts, then streams: memory stays flat.

    python -m tests.stress.soak [--exchanges 1000000]

Runs against the mock engine of the bench, so that the gateway is what limits. The last line is PASS or FAIL.
"""

from __future__ import annotations

import argparse
import sys
import time

from tests.bench import harness, machine
from tests.bench.peers import OURS, candidates, write_our_config
from tests.bench.workloads import WORKLOADS

LIMIT_MB = 20.0  # of growth, after the first tenth
LEG_S = 10.0
TIME_LIMIT_S = 600.0


def drive(exchanges: int) -> tuple[list[tuple[int, float]], int, int]:
    """Legs of unique prompts until there are enough, with a leg of streams between them.

    Returns (exchanges, MB) after each leg, then how many exchanges went well and how many did not.
    """
    candidate, deadline = candidates()[OURS], time.monotonic() + TIME_LIMIT_S
    done, trouble, readings = 0, 0, []
    with harness.engines() as mock_pid, harness.started(candidate) as (pid, _):
        while done < exchanges and time.monotonic() < deadline:
            for workload, seconds in (("U", LEG_S), ("W3", 1.0)):
                load = harness.measure(candidate, WORKLOADS[workload], pid, mock_pid, seconds).load
                done += load.ok
                trouble += load.err + load.bad
            readings.append((done, machine.memory_mb(machine.tree(pid))[0]))
            print(f"{done:>9} exchanges  {readings[-1][1]:.1f} MB", file=sys.stderr, flush=True)
    return readings, done, trouble


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=1_000_000)
    options = parser.parse_args()
    begun = time.monotonic()
    try:
        harness.build()
        write_our_config()
        readings, done, trouble = drive(options.exchanges)
    except harness.BenchError as error:
        print(f"FAIL soak: {error}")
        return 1
    settled = next((mb for exchanges, mb in readings if exchanges >= options.exchanges / 10), readings[-1][1])
    growth = readings[-1][1] - settled
    passed = growth < LIMIT_MB and not trouble and done >= options.exchanges
    print(
        f"{'PASS' if passed else 'FAIL'} soak: {done} exchanges in {time.monotonic() - begun:.0f} s, {trouble} failed, "
        f"memory {settled:.1f} -> {readings[-1][1]:.1f} MB (grown by {growth:.1f}, limit {LIMIT_MB:.0f})"
    )
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
