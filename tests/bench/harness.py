"""Starts a candidate in front of the mock engines, loads it and measures it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.bench import machine
from tests.bench.peers import ENGINE_PORTS, HERE, KEY, RESULTS, SINK_PORT, Candidate
from tests.bench.workloads import CHUNKS, WORKLOADS, Workload, write_bodies
from tests.support.processes import running

BIN, BODIES, SOURCES = HERE / "bin", HERE / "bodies", HERE / "src"
GATEWAY_CORES, LOAD_CORES = {0}, {1}
PROOF = b"byte for byte"  # in every answer of the mock
GRACE_S = 3.0  # then a router that drains is killed


class BenchError(Exception):
    """The bench cannot go on; the message says what to do."""


@dataclass(frozen=True)
class Start:
    """How a candidate came up: seconds until its first good answer, memory then."""

    seconds: float
    rss_mb: float


class Spread(msgspec.Struct):
    """A distribution, in µs."""

    n: int
    mean: float
    p50: float
    p90: float
    p99: float
    max: float


class LoadReport(msgspec.Struct):
    """What the load generator prints. `bad` answers came with status 200, but not with what the mock sent."""

    ok: int
    err: int
    bad: int
    rps: float
    chunks: int
    load_cpu_s: float
    note: str
    lat_us: Spread
    ttft_us: Spread | None = None
    oneway_us: Spread | None = None  # from the mock's write to the client's read, per chunk
    gap_us: Spread | None = None  # between two chunks of a stream


class Figures(msgspec.Struct):
    """One measurement. CPU is that of the candidate's whole process tree."""

    load: LoadReport
    us_request: float
    us_chunk: float | None
    share: float  # of one core
    other: float  # cores that everything else on the machine used meanwhile: the noise of this figure
    peak_mb: float


def build() -> None:
    """Compile mock and load generator when a source is newer, and write the request bodies."""
    if (compiler := shutil.which("cc") or shutil.which("gcc")) is None:
        raise BenchError("needs a C compiler (cc or gcc) on PATH")
    BIN.mkdir(exist_ok=True)
    RESULTS.mkdir(exist_ok=True)
    changed = max(source.stat().st_mtime for source in SOURCES.iterdir())
    for source in sorted(SOURCES.glob("*.c")):
        binary = BIN / source.stem
        if not binary.exists() or binary.stat().st_mtime < changed:
            subprocess.run([compiler, "-O2", "-Wall", "-o", binary, source, "-lm"], check=True)
    write_bodies(BODIES)


@contextmanager
def engines() -> Iterator[int]:
    """The mock engines and a trace collector; yields the process id of the engines."""
    with ExitStack() as stack:
        sink = [sys.executable, "-m", "tests.bench.sink", str(SINK_PORT)]
        ports = [argument for port in ENGINE_PORTS for argument in ("-p", str(port))]
        mock = stack.enter_context(running([str(BIN / "mock"), *ports], _log_of("mock"), grace_s=GRACE_S))
        stack.enter_context(running(sink, _log_of("sink"), grace_s=GRACE_S))
        time.sleep(0.3)
        if mock.poll() is not None:
            raise BenchError(f"the mock engines did not start: are ports {ENGINE_PORTS} free?")
        yield mock.pid


@contextmanager
def started(candidate: Candidate) -> Iterator[tuple[int, Start]]:
    """A running candidate: its process id (0 for none) and how it came up."""
    if not candidate.argv:
        yield 0, Start(0.0, 0.0)
        return
    with ExitStack() as stack:
        begun = time.monotonic()
        with machine.cores(GATEWAY_CORES):
            log, env = _log_of(candidate.name), candidate.env
            process = stack.enter_context(running(candidate.argv, log, env=env, grace_s=GRACE_S))
        _wait_for_answer(candidate, process, begun)
        seconds = time.monotonic() - begun
        yield process.pid, Start(round(seconds, 3), machine.memory_mb(machine.tree(process.pid))[0])


def warm(candidate: Candidate, pid: int, mock_pid: int) -> None:
    """Bring connections and caches up before anything counts."""
    for name, share in (("W1", 1.0), ("W3", 0.5)):
        measure(candidate, WORKLOADS[name], pid, mock_pid, seconds=candidate.warm_s * share)


def measure(candidate: Candidate, workload: Workload, pid: int, mock_pid: int, seconds: float | None = None) -> Figures:
    """Load a candidate once, for its own time or `seconds`."""
    if workload.stream:
        _shape_streams(workload)
    argv = [str(BIN / "load"), "-t", f"127.0.0.1:{candidate.port}", "-b", str(BODIES / f"{workload.body}.json")]
    argv += workload.arguments() + (["-D", str(seconds)] if seconds else [])
    before, mock_before, busy_before = machine.cpu(_tree(pid)), machine.cpu([mock_pid]), machine.machine_busy_s()
    begun = time.monotonic()
    output = subprocess.run(argv, stdout=subprocess.PIPE, check=False).stdout
    elapsed = time.monotonic() - begun
    pids = _tree(pid)
    gateway_s = before.until(machine.cpu(pids))
    bench_s = gateway_s + mock_before.until(machine.cpu([mock_pid]))
    busy_s = machine.machine_busy_s() - busy_before
    try:
        load = msgspec.json.decode(output, type=LoadReport)
    except msgspec.DecodeError:
        raise BenchError(f"{candidate.name} {workload.name}: the load generator failed: {output[-200:]!r}") from None
    return Figures(
        load=load,
        us_request=round(gateway_s / max(1, load.ok + load.bad) * 1e6, 2),
        us_chunk=round(gateway_s / load.chunks * 1e6, 3) if load.chunks else None,
        share=round(gateway_s / elapsed, 3),
        other=round(max(0.0, busy_s - bench_s - load.load_cpu_s) / elapsed, 3),
        peak_mb=round(machine.memory_mb(pids)[1], 1),
    )


def _tree(pid: int) -> list[int]:
    return machine.tree(pid) if pid else []


def _shape_streams(workload: Workload) -> None:
    query = f"chunks={CHUNKS}&delay={workload.tick_us}&sync={int(workload.in_step)}"
    with urllib.request.urlopen(f"http://127.0.0.1:{ENGINE_PORTS[0]}/ctl?{query}", timeout=5) as answer:
        answer.read()


def _wait_for_answer(candidate: Candidate, process: subprocess.Popen[bytes], begun: float) -> None:
    body = (BODIES / "1k.json").read_bytes()
    headers = {"content-type": "application/json", "authorization": f"Bearer {KEY}"}
    url = f"http://127.0.0.1:{candidate.port}/v1/chat/completions"
    last = ""
    while time.monotonic() - begun < candidate.start_limit_s:
        if process.poll() is not None:
            last = f"ended with status {process.returncode}"
            break
        try:
            request = urllib.request.Request(url, body, headers)
            with urllib.request.urlopen(request, timeout=5) as answer:
                if PROOF in answer.read():
                    return
                last = "answered something else"
        except urllib.error.HTTPError as error:
            last = f"{error.code} {error.read()[:200]!r}"
        except OSError as error:
            last = str(error)
        time.sleep(0.005)
    raise BenchError(f"{candidate.name} did not start: {last} (its output is in {_log_of(candidate.name)})")


def _log_of(name: str) -> Path:
    return RESULTS / f"{name}.log"
