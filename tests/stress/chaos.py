"""Thousands of exchanges while engines refuse, reset, stall, lie and hang; then everything must be at rest.

    python -m tests.stress.chaos [--exchanges 10000] [--seed 1]

The last line is PASS or FAIL with the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import aiohttp

from backends.simulator.faults import FAULTS
from gateway.cli.children import free_ports
from tests.stress.clients import Client, Outcome, Tally, many
from tests.support.gateway import COMMAND, Gateway, gateway
from tests.support.processes import StartError, running, wait_for

ENGINES = ("vllm", "sglang")
MODEL = "sim"
MODELS = ("either", *(f"only-{engine}" for engine in ENGINES))  # what clients ask for
SHARE = 0.04  # how often each fault strikes a replica that has them all
AFTER = {"reset_after": 3, "stall_after": 2, "truncate_after": 4, "error_frame": 2, "slow_first_byte": 0.3}
MIXED = ",".join(f"{n}={AFTER[n]}:{SHARE}" if n in AFTER else f"{n}:{SHARE}" for n in FAULTS if n != "hang_health")
REPLICAS = ("", MIXED, MIXED, "hang_health", "refuse")  # of each pool: one is well, one is mute, one is not there
SPEED = ("--profile", "h200", "--time-scale", "20")
REST_S = 15.0
LINE = 300  # of a complaint
# What a log must not hold: exceptions that nobody meant, tasks and sockets that nobody owns.
FOREIGN = re.compile(r"Traceback|never retrieved|was destroyed but|Unclosed|handler failed|background task failed")


@contextmanager
def simulators(folder: Path) -> Iterator[dict[str, list[str]]]:
    """URLs of the simulated replicas of each engine."""
    plans = [(engine, fault) for engine in ENGINES for fault in REPLICAS]
    urls: dict[str, list[str]] = {engine: [] for engine in ENGINES}
    with ExitStack() as stack:
        started = []
        for seed, ((engine, fault), port) in enumerate(zip(plans, free_ports(*[0] * len(plans)), strict=True)):
            log = folder / f"sim-{port}.log"
            argv = [COMMAND, "sim", "--engine", engine, "--port", str(port), "--model", MODEL, *SPEED]
            argv += ["--seed", str(seed)] + (["--fault", fault] if fault else [])
            urls[engine].append(f"http://127.0.0.1:{port}")
            started.append((fault, urls[engine][-1], stack.enter_context(running(argv, log, grace_s=3)), log))
        for fault, url, process, log in started:
            if fault in {"", MIXED}:
                wait_for(f"{url}/v1/models", process, log, 120)
        yield urls


def config(urls: dict[str, list[str]]) -> dict[str, Any]:
    """Two pools. Breakers are off, or the faulty replicas would soon be spared."""
    return {
        "pools": [
            {
                "name": engine,
                "engine": engine,
                "model": MODEL,
                "replicas": replicas,
                "breaker": {"enabled": False},
                "probe": {"golden": False, "interval_s": 0.5, "timeout_s": 0.5},
                "timeouts": {"connect_s": 1.0, "first_byte_s": 2.0, "idle_s": 1.0, "total_s": 20.0},
            }
            for engine, replicas in urls.items()
        ],
        "models": [
            {"name": "either", "pools": list(urls)},
            *({"name": f"only-{engine}", "pools": [engine]} for engine in urls),
        ],
    }


async def drive(target: Gateway, exchanges: int, concurrency: int, seed: int) -> Tally:
    """The exchanges, as the test tenant."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(connector=connector, headers=target.headers) as session:
        client = Client(session, target.url, MODELS)
        return await many(client, exchanges, concurrency, random.Random(seed))


def at_rest(target: Gateway) -> list[str]:
    """What is still held after everybody has gone; waits a while for cancelled exchanges to end."""
    deadline = time.monotonic() + REST_S
    while (held := _held(target)) and time.monotonic() < deadline:
        time.sleep(0.1)
    return held


def _held(target: Gateway) -> list[str]:
    held = [
        f"{replica['id']} {counter} {replica[counter]}"
        for replica in target.admin("replicas")["replicas"]
        for counter in ("in_flight", "prefill_tokens", "context_tokens")
        if replica[counter]
    ]
    held += [f"exchange {exchange['request_id']}" for exchange in target.admin("exchanges")["in_flight"]]
    held += [
        line for line in target.metrics().splitlines() if re.match(r"headrace_(leases|\w*in_flight)\S* [^0]", line)
    ]
    return held


def foreign_lines(log: Path) -> list[str]:
    """Lines of a log that tell of something nobody meant to happen."""
    return [line for line in log.read_text(errors="replace").splitlines() if FOREIGN.search(line)]


def run(folder: Path, exchanges: int, concurrency: int, seed: int) -> tuple[Tally, list[str]]:
    """Tally and complaints of one run; nothing to complain of is a pass."""
    with simulators(folder) as urls, gateway(config(urls), folder) as target:
        tally = asyncio.run(drive(target, exchanges, concurrency, seed))
        complaints = [*tally.broken, *at_rest(target)]
        target.process.terminate()
        if (status := target.process.wait(30)) != 0:
            complaints.append(f"exit status {status}")
        complaints += foreign_lines(target.log)
    if tally.outcomes[Outcome.FULL] < exchanges // 4:
        complaints.append(f"only {tally.outcomes[Outcome.FULL]} full answers: this run tested little")
    return tally, complaints


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--exchanges", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=128)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs there")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-chaos-") as folder:
        logs = options.logs or Path(folder)
        try:
            tally, complaints = run(logs, options.exchanges, options.concurrency, options.seed)
        except StartError as error:
            print(error)
            print("FAIL chaos: not everything came up")
            return 1
    for complaint in complaints[:20]:
        print(f"  {complaint[:LINE]}")
    outcomes = ", ".join(f"{count} {outcome.value}" for outcome, count in tally.outcomes.most_common())
    statuses = ", ".join(f"{count} x {status}" for status, count in sorted(tally.statuses.items()))
    word = "FAIL" if complaints else "PASS"
    print(
        f"{word} chaos: {options.exchanges} exchanges in {time.monotonic() - begun:.0f} s: {outcomes} "
        f"(statuses: {statuses}); {len(complaints)} complaints"
    )
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())
