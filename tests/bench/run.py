"""Gateways side by side, each pinned to one core in front of two mock engines.

    python -m tests.bench.run               all candidates, medians of three interleaved rounds
    python -m tests.bench.run --quick       Headrace beside its yardsticks, one round

The last line is PASS or FAIL with the figures that decide it; all rounds go to results/NAME.json.
"""

from __future__ import annotations

import argparse
import datetime as dt
import os
import platform
import sys
import time
from collections.abc import Sequence

import msgspec

from tests.bench import harness, machine, report
from tests.bench.harness import Figures
from tests.bench.peers import OURS, RESULTS, Candidate, candidates, write_our_config
from tests.bench.report import Results
from tests.bench.workloads import WORKLOADS

FULL = ("L", "W1", "W2", "W3", "W4", "W5", "W6")
QUICK = ("W1", "W2", "W6")
QUICK_CANDIDATES = ("direct", "envoy", "vllm-router", OURS)
REALTIME_PRIORITY = 5
BREATH_S = 0.5  # between two candidates, for whoever shares the machine


def main() -> int:
    """Run, print and write; 0 when every bar holds."""
    options = _options()
    os.sched_setaffinity(0, harness.LOAD_CORES)
    if options.realtime and not machine.realtime(REALTIME_PRIORITY):
        print("no right to real-time scheduling: other work on this machine will show in the figures", file=sys.stderr)
    try:
        harness.build()
        write_our_config()
        results = run(_chosen(options.candidates), options.workloads, options.rounds)
    except harness.BenchError as error:
        print(f"FAIL {options.name}: {error}")
        return 1
    listed = report.bars(results, options.workloads)
    print(report.table(results, options.workloads))
    print(report.noise(results))
    _write(options.name, results, listed)
    print(report.verdict(options.name, listed))
    return 0 if all(bar.passed for bar in listed) else 1


def run(chosen: Sequence[Candidate], workloads: Sequence[str], rounds: int) -> dict[str, Results]:
    """Measure candidates in turn, round after round, so that a change of the machine's mood meets all of them."""
    results = {candidate.name: Results() for candidate in chosen}
    with harness.engines() as mock_pid:
        for round_number in range(rounds):
            for candidate in chosen:
                if round_number < candidate.reps:
                    _one_round(candidate, workloads, mock_pid, results[candidate.name])
                    time.sleep(BREATH_S)
    return results


def _one_round(candidate: Candidate, workloads: Sequence[str], mock_pid: int, into: Results) -> None:
    with harness.started(candidate) as (pid, start):
        if pid:
            into.starts.append(start)
        harness.warm(candidate, pid, mock_pid)
        for name in workloads:
            if candidate.workloads is None or name in candidate.workloads:
                workload = WORKLOADS[name]
                tried = [harness.measure(candidate, workload, pid, mock_pid) for _ in range(workload.tries)]
                figures = min(tried, key=_calm)
                into.rounds.setdefault(name, []).append(figures)
                _progress(candidate.name, name, figures)


def _calm(figures: Figures) -> tuple[bool, float]:
    """Sorts the calmest first, but before it whatever went wrong: no error is ever left out."""
    load = figures.load
    return not (load.err or load.bad), (load.gap_us or load.lat_us).p99


def _progress(candidate: str, workload: str, figures: Figures) -> None:
    load = figures.load
    cost = f"{figures.us_request} µs/request" if figures.us_chunk is None else f"{figures.us_chunk} µs/chunk"
    line = f"{candidate:14s} {workload:3s} {load.rps:>9}/s  {cost:20s} other {figures.other}"
    trouble = f"  err {load.err} bad {load.bad}: {load.note}" if load.err or load.bad else ""
    print(line + trouble, file=sys.stderr, flush=True)


def _chosen(names: Sequence[str]) -> list[Candidate]:
    known = candidates()
    if unknown := set(names) - set(known):
        raise harness.BenchError(f"no such candidate: {', '.join(sorted(unknown))}")
    chosen = [known[name] for name in names or known]
    for missing in (candidate for candidate in chosen if not candidate.installed):
        print(f"{missing.name} is not installed: left out", file=sys.stderr)
    return [candidate for candidate in chosen if candidate.installed]


def _write(name: str, results: dict[str, Results], listed: Sequence[report.Bar]) -> None:
    content = {
        "date": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "machine": {"kernel": platform.release(), "python": platform.python_version(), "cores": os.cpu_count()},
        "bars": [{"name": bar.name, "figure": bar.figure, "limit": bar.limit, "passed": bar.passed} for bar in listed],
        "candidates": results,
    }
    (RESULTS / f"{name}.json").write_bytes(msgspec.json.format(msgspec.json.encode(content), indent=1))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one round, few candidates and workloads")
    parser.add_argument("--candidates", type=_names, default=None, metavar="A,B", help="which gateways")
    parser.add_argument("--workloads", type=_names, default=None, metavar="W1,W2", help=", ".join(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=None)
    parser.add_argument("--realtime", action=argparse.BooleanOptionalAction, default=True, help="schedule in SCHED_RR")
    options = parser.parse_args()
    options.name = "bench-quick" if options.quick else "bench"
    options.candidates = options.candidates or (QUICK_CANDIDATES if options.quick else ())
    options.workloads = options.workloads or (QUICK if options.quick else FULL)
    options.rounds = options.rounds or (1 if options.quick else 3)
    if unknown := set(options.workloads) - set(WORKLOADS):
        parser.error(f"no such workload: {', '.join(sorted(unknown))}")
    return options


def _names(text: str) -> tuple[str, ...]:
    return tuple(name for name in text.split(",") if name)


if __name__ == "__main__":
    sys.exit(main())
