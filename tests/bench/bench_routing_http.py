"""The same simulators behind real routers, over HTTP, in real time: one router after the other.

    python -m tests.bench.bench_routing_http [--requests N] [--rate R] [--port P] [NAME ...]

Prompts are text with shared prefixes, as agents send it. Every router gets fresh simulators and the same arrivals.
`--time-scale` below 1 slows the simulators down, so that the machine's own speed matters less. The last line is PASS or
FAIL; a run without Headrace or without another router has nothing to compare and fails.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import aiohttp
import numpy as np

from backends.simulator.tokenizer import WORDS
from gateway.replay.trace import Arrival
from tests.bench.peers import PEERS
from tests.bench.routing_traffic import conversations
from tests.support.processes import StartError, running, wait_for

HEADRACE = str(Path(sys.executable).with_name("headrace"))
MODEL = "sim"
FLEET = ("h100-fp8", "h100-fp8", "b300-nvfp4", "gb200-mtp")
WORDS_PER_BLOCK = 512
ANSWER_TOKENS = 32  # at most: the prompts are what is routed by
START_LIMIT_S = 60.0
REQUEST_LIMIT_S = 120.0
SUCCESS = re.compile(r"^vllm:request_success_total\{[^}]*\} (\S+)", re.MULTILINE)


@dataclass(slots=True)
class Ports:
    """Where everything listens, from one base."""

    base: int

    @property
    def router(self) -> int:
        return self.base

    @property
    def admin(self) -> int:
        return self.base + 1

    @property
    def metrics(self) -> int:
        return self.base + 2

    def sim(self, number: int) -> int:
        return self.base + 10 + number

    def events(self, number: int) -> int:
        return self.base + 40 + 2 * number

    @property
    def urls(self) -> list[str]:
        return [f"http://127.0.0.1:{self.sim(number)}" for number in range(len(FLEET))]


@dataclass(frozen=True, slots=True)
class Sims:
    """The simulators to start."""

    ports: Ports
    time_scale: float


@dataclass(slots=True)
class Seen:
    """What the client saw of one router."""

    ttft_s: list[float] = field(default_factory=list)
    e2e_s: list[float] = field(default_factory=list)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    failed: int = 0
    served: list[int] = field(default_factory=list)  # by replica


def text_of(arrival: Arrival) -> str:
    """One word is one token to the simulator; equal blocks are equal words."""
    words: list[str] = []
    for block in arrival.blocks:
        rng = random.Random(block)
        words.extend(rng.choices(WORDS, k=WORDS_PER_BLOCK))
    return " ".join(words[: arrival.prompt_tokens])


def body_of(arrival: Arrival) -> bytes:
    return json.dumps(
        {
            "model": MODEL,
            "messages": [{"role": "user", "content": text_of(arrival)}],
            "max_tokens": min(ANSWER_TOKENS, arrival.output_tokens),
            "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()


def sim_argv(ports: Ports, number: int, time_scale: float) -> list[str]:
    return [
        *(HEADRACE, "sim", "--engine", "vllm", "--model", MODEL, "--profile", FLEET[number]),
        *("--time-scale", str(time_scale)),
        *("--port", str(ports.sim(number)), "--kv-events", str(ports.events(number))),
    ]


def our_config(ports: Ports, folder: Path, policy: str) -> Path:
    pools = [
        {"name": name, "engine": "vllm", "model": MODEL, "hardware": name, "probe": {"golden": False},
         "replicas": [url for url, profile in zip(ports.urls, FLEET, strict=True) if profile == name]}
        for name in dict.fromkeys(FLEET)
    ]  # fmt: skip
    config = {
        "listen": {"host": "127.0.0.1", "port": ports.router, "admin_port": ports.admin},
        "auth": {"mode": "open"},
        "pools": pools,
        "models": [{"name": MODEL, "pools": [pool["name"] for pool in pools], "routing": policy}],
    }
    path = folder / f"headrace-{policy}.yaml"
    path.write_text(json.dumps(config))  # JSON is YAML
    return path


def routers(ports: Ports, folder: Path) -> dict[str, list[str]]:
    """How each router is started."""
    common = ["--host", "127.0.0.1", "--port", str(ports.router), "--prometheus-port", str(ports.metrics)]
    workers = ["--worker-urls", *ports.urls]
    events = [f"{url}=tcp://127.0.0.1:{ports.events(number)}" for number, url in enumerate(ports.urls)]
    sources = [part for event in events for part in ("--kv-event-source", event)]
    vllm, sglang = str(PEERS / "vllmr/bin/vllm-router"), str(PEERS / "sglr/bin/sglang-router")
    quiet = ["--log-level", "error"]
    return {
        "headrace latency": [HEADRACE, "serve", str(our_config(ports, folder, "latency"))],
        "headrace p2c": [HEADRACE, "serve", str(our_config(ports, folder, "p2c"))],
        "vllm-router cache_aware": [vllm, *common, *workers, "--policy", "cache_aware", *quiet],
        "vllm-router kv_aware": [
            *(vllm, *common, *workers, "--policy", "kv_aware", *sources),
            *("--kv-event-block-size", "16", "--kv-event-model", MODEL, *quiet),
        ],
        "sglang-router cache_aware": [sglang, "launch", *common, *workers, "--policy", "cache_aware", *quiet],
    }


async def load(url: str, bodies: list[bytes], starts: list[float], seen: Seen) -> None:
    """Send every body at its time, whatever became of those before."""
    timeout = aiohttp.ClientTimeout(total=REQUEST_LIMIT_S)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=0)) as session:
        began = time.perf_counter() + 0.2

        async def one(body: bytes, at_s: float) -> None:
            await asyncio.sleep(max(0.0, began + at_s - time.perf_counter()))
            try:
                await _exchange(session, url, body, seen)
            except (aiohttp.ClientError, TimeoutError, ValueError):
                seen.failed += 1

        await asyncio.gather(*(one(body, at_s) for body, at_s in zip(bodies, starts, strict=True)))


async def _exchange(session: aiohttp.ClientSession, url: str, body: bytes, seen: Seen) -> None:
    sent = time.perf_counter()
    spoke = False
    headers = {"content-type": "application/json"}
    async with session.post(f"{url}/v1/chat/completions", data=body, headers=headers) as answer:
        answer.raise_for_status()
        async for line in answer.content:
            if not line.startswith(b"data: {"):
                continue
            frame = json.loads(line[6:])
            if not spoke and any(choice["delta"].get("content") for choice in frame.get("choices", ())):
                spoke = True
                seen.ttft_s.append(time.perf_counter() - sent)
            if usage := frame.get("usage"):
                seen.prompt_tokens += usage["prompt_tokens"]
                seen.cached_tokens += (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    if spoke:
        seen.e2e_s.append(time.perf_counter() - sent)
    else:
        seen.failed += 1


def served(url: str) -> int:
    """Requests a simulator has finished."""
    with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:
        return int(sum(float(value) for value in SUCCESS.findall(answer.read().decode())))


def measure(argv: list[str], fleet: Sims, folder: Path, bodies: list[bytes], starts: list[float]) -> Seen:
    """One router in front of fresh simulators."""
    seen, ports = Seen(), fleet.ports
    with ExitStack() as stack:
        for number, url in enumerate(ports.urls):
            log = folder / f"sim-{number}.log"
            wait_for(
                f"{url}/health",
                stack.enter_context(running(sim_argv(ports, number, fleet.time_scale), log)),
                log,
                START_LIMIT_S,
            )
        log = folder / "router.log"
        router = stack.enter_context(running(argv, log, grace_s=3.0))
        url = f"http://127.0.0.1:{ports.router}"
        wait_for(f"{url}/v1/models", router, log, START_LIMIT_S)
        time.sleep(3.0)  # health checks and event subscriptions
        asyncio.run(load(url, bodies, starts, seen))
        seen.served = [served(url) for url in ports.urls]
    return seen


def line(name: str, seen: Seen) -> str:
    """One row of the table."""
    p50, p95, p99 = np.percentile(seen.ttft_s, (50, 95, 99)) if seen.ttft_s else (np.nan,) * 3
    mean = np.mean(seen.ttft_s) if seen.ttft_s else np.nan
    e2e = np.mean(seen.e2e_s) if seen.e2e_s else np.nan
    hit = seen.cached_tokens / seen.prompt_tokens if seen.prompt_tokens else 0.0
    skew = max(seen.served) / max(1e-9, np.mean(seen.served)) if any(seen.served) else np.nan
    return (
        f"{name:26} mean {mean:7.3f} p50 {p50:7.3f} p95 {p95:7.3f} p99 {p99:7.3f}  e2e {e2e:7.3f}  hit {hit:6.1%}  "
        f"max/mean {skew:4.2f} {seen.served}  failed {seen.failed}"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("names", nargs="*", help="routers; all without")
    parser.add_argument("--requests", type=int, default=480)
    parser.add_argument("--rate", type=float, default=6.0, help="exchanges per second")
    parser.add_argument("--time-scale", type=float, default=0.25, help="simulated seconds per second")
    parser.add_argument("--port", type=int, default=24000, help="first of a hundred ports")
    asked = parser.parse_args()
    ports = Ports(asked.port)
    trace = conversations(asked.requests, asked.requests / asked.rate)
    bodies = [body_of(arrival) for arrival in trace.arrivals]
    starts = [arrival.at_s for arrival in trace.arrivals]
    fleet = Sims(ports, asked.time_scale)
    results: dict[str, Seen] = {}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        for name, argv in routers(ports, folder).items():
            if asked.names and name not in asked.names:
                continue
            try:
                results[name] = measure(argv, fleet, folder, bodies, starts)
            except (StartError, FileNotFoundError) as error:
                print(f"{name:26} did not start: {str(error).splitlines()[0]}", flush=True)
                continue
            print(line(name, results[name]), flush=True)
    return verdict(results)


def verdict(results: dict[str, Seen]) -> int:
    """Ours against the best of the others by mean TTFT."""
    ours = results.pop("headrace latency", None)
    others = {name: seen for name, seen in results.items() if seen.ttft_s and not name.startswith("headrace")}
    if ours is None or not others:
        print(f"FAIL routing over HTTP: nothing to compare, ran {', '.join(sorted(results)) or 'nothing else'}")
        return 1
    best = min(others, key=lambda name: float(np.mean(others[name].ttft_s)))
    share = float(np.mean(ours.ttft_s) / np.mean(others[best].ttft_s)) if ours.ttft_s else np.inf
    passed = share <= 1.0 and not ours.failed
    figures = f"mean TTFT x{share:.2f} of {best}, the best other; {ours.failed} failed"
    print(f"{'PASS' if passed else 'FAIL'} routing over HTTP: {figures}")
    return int(not passed)


if __name__ == "__main__":
    sys.exit(main())
