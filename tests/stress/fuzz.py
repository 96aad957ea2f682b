"""Malformed requests against the listener: each gets one proper error of one line, and the process lives.

    python -m tests.stress.fuzz [--cases 3000] [--seed 1]

The last line is PASS or FAIL with the figures.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from gateway.cli.children import free_ports
from tests.stress.chaos import LINE, at_rest, foreign_lines
from tests.stress.clients import BrokenAnswerError, check_message
from tests.stress.malformed import Case, cases, http, sane
from tests.support.gateway import COMMAND, KEY, Gateway, gateway
from tests.support.processes import StartError, running, wait_for

PATIENCE_S = 15.0
LEAVE_AFTER_S = 0.5
CONCURRENCY = 16
READ_LIMIT = 4 << 20
BODY_LIMIT = 1 << 20


class Fuzzer:
    """Sends cases over raw connections and judges what comes back."""

    def __init__(self, target: Gateway) -> None:
        self._port = int(target.url.rsplit(":", 1)[1])
        self.answers: Counter[str] = Counter()
        self.complaints: list[str] = []

    async def all(self, listed: Iterable[Case]) -> None:
        """Every case, some at once."""
        queue = iter(listed)

        async def worker() -> None:
            for case in queue:
                await self.one(case)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONCURRENCY):
                group.create_task(worker())

    async def one(self, case: Case) -> None:
        """One case on a connection of its own."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                answer = await self._send(case)
            self.answers[judge(case, answer)] += 1
        except (BrokenAnswerError, TimeoutError, ValueError, KeyError, TypeError) as error:
            self.complaints.append(f"{case.name}: {error!r} for {case.data[:300]!r}")

    async def _send(self, case: Case) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=READ_LIMIT)
        try:
            writer.write(case.data)
            await writer.drain()
            if case.incomplete:  # it may be answered; if not, we leave, and the gateway must let go
                asyncio.get_running_loop().call_later(LEAVE_AFTER_S, writer.write_eof)
            return await _first_answer(reader)
        except ConnectionError:  # refused in the middle of what we were sending
            return b""
        finally:
            writer.close()


async def _first_answer(reader: asyncio.StreamReader) -> bytes:
    """Head and body of the first final answer; b"" when the connection was closed without one."""
    received = b""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        if head.startswith(b"HTTP/1.1 100"):
            head = await reader.readuntil(b"\r\n\r\n")
        received = head
        lines = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:] if b": " in line)
        if length := lines.get(b"content-length"):
            return received + await reader.readexactly(int(length))
        if b"transfer-encoding" in lines:
            return received + await reader.readuntil(b"\r\n0\r\n\r\n")
        return received + await reader.read(READ_LIMIT)
    except asyncio.IncompleteReadError:
        return received
    except ConnectionError:
        return received


def judge(case: Case, answer: bytes) -> str:
    """The status of an answer, or "silence"; BrokenAnswerError when it is no proper one."""
    if not answer:
        if case.incomplete or len(case.data) > 60_000:  # nobody answers a request that cannot be read to its end
            return "silence"
        raise BrokenAnswerError("closed without an answer")
    head, _, body = answer.partition(b"\r\n\r\n")
    version, status, _ = head.split(b" ", 2)
    if not version.startswith(b"HTTP/") or not status.isdigit():
        raise BrokenAnswerError(f"not HTTP: {head[:80]!r}")
    if int(status) >= 500 and int(status) not in (501, 505):
        raise BrokenAnswerError(f"the gateway or the engine took it badly: {answer[:400]!r}")
    if int(status) >= 400 and not case.data.startswith(b"HEAD"):
        check_message(json.loads(body)["error"])
    return status.decode()


def run(folder: Path, count: int, seed: int) -> Fuzzer:
    """All cases against a gateway in front of one simulated engine."""
    (port,) = free_ports(0)
    log = folder / "sim.log"
    sim = [COMMAND, "sim", "--engine", "vllm", "--port", str(port), "--model", "sim", "--time-scale", "50"]
    config = {
        "listen": {"body_limit_bytes": BODY_LIMIT},
        "pools": [{"name": "sim", "engine": "vllm", "model": "sim", "replicas": [f"http://127.0.0.1:{port}"]}],
        "models": [{"name": "sim", "pools": ["sim"]}],
    }
    with running(sim, log, grace_s=3) as process:
        wait_for(f"http://127.0.0.1:{port}/v1/models", process, log, 120)
        with gateway(config, folder) as target:
            fuzzer = Fuzzer(target)
            rng = random.Random(seed)
            asyncio.run(fuzzer.all(cases(rng, KEY, count)))
            asyncio.run(fuzzer.one(Case("a good one, at the end", http(json.dumps(sane(rng)).encode(), KEY))))
            if not fuzzer.answers["200"]:
                fuzzer.complaints.append("not even a good request is answered")
            fuzzer.complaints += at_rest(target) + foreign_lines(target.log)
            if target.process.poll() is not None:
                fuzzer.complaints.append(f"the process ended with status {target.process.returncode}")
    return fuzzer


def main() -> int:
    """Run and judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=3_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--logs", type=Path, metavar="DIR", help="keep the logs there")
    options = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="headrace-fuzz-") as folder:
        try:
            fuzzer = run(options.logs or Path(folder), options.cases, options.seed)
        except StartError as error:
            print(error)
            print("FAIL fuzz: not everything came up")
            return 1
    for complaint in fuzzer.complaints[:20]:
        print(f"  {complaint[:LINE]}")
    answers = ", ".join(f"{count} x {answer}" for answer, count in sorted(fuzzer.answers.items()))
    print(
        f"{'FAIL' if fuzzer.complaints else 'PASS'} fuzz: {options.cases} requests in "
        f"{time.monotonic() - begun:.0f} s: {answers}; {len(fuzzer.complaints)} complaints"
    )
    return 1 if fuzzer.complaints else 0


if __name__ == "__main__":
    sys.exit(main())
