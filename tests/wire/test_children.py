"""Processes that are started together, and gone together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gateway.cli.children import Children, answers, free_ports
from gateway.cli.output import UserError

SLEEP = (sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)")
STUBBORN = (SLEEP[0], "-c", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + SLEEP[2])
PARENT = """
import os, sys, time
from pathlib import Path
from gateway.cli.children import Children
with Children(Path(sys.argv[1])) as children:
    children.start("child", [sys.executable, "-c", "import os, time; print(os.getpid(), flush=True); time.sleep(60)"],
                   os.environ)
    time.sleep(60)
"""


@contextmanager
def kept_signals() -> Iterator[None]:
    """Children ignores stop signals once it ends; the test process must not."""
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.getsignal(number) for number in numbers]
    try:
        yield
    finally:
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def _signals() -> Iterator[None]:
    with kept_signals():
        yield


def pid_in(log: Path) -> int:
    """What a child has written: its process id."""
    while not (log.exists() and log.read_text().endswith("\n")):
        time.sleep(0.01)
    return int(log.read_text())


def gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"


def test_they_end_with_the_block_even_the_stubborn(tmp_path: Path) -> None:
    with Children(tmp_path, grace_s=0.2) as children:
        children.start("willing", SLEEP, os.environ)
        children.start("stubborn", STUBBORN, os.environ)
        pids = [pid_in(children.log(name)) for name in ("willing", "stubborn")]
        children.check()
        assert not any(map(gone, pids))
    assert all(map(gone, pids))


def test_they_end_when_the_block_fails(tmp_path: Path) -> None:
    pids: list[int] = []

    def block() -> None:
        with Children(tmp_path) as children:
            children.start("child", SLEEP, os.environ)
            pids.append(pid_in(children.log("child")))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    assert gone(pids[0])


def test_an_early_end_is_told_with_the_log(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        children.start("engine", (sys.executable, "-c", "raise SystemExit('no such model')"), os.environ)
        with pytest.raises(UserError, match=r"engine ended with status 1\n  engine: no such model"):
            children.wait_ready("engine", "http://127.0.0.1:1/", 30.0)


def test_a_late_one_is_told(tmp_path: Path) -> None:
    with Children(tmp_path) as children:
        children.start("engine", SLEEP, os.environ)
        pid = pid_in(children.log("engine"))
        with pytest.raises(UserError, match=rf"engine is not ready after 0 s\n  engine: {pid}"):
            children.wait_ready("engine", "http://127.0.0.1:1/", 0.0)


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel tells the children")
def test_they_end_when_the_parent_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen((sys.executable, "-c", PARENT, str(tmp_path))) as parent:
        pid = pid_in(tmp_path / "child.log")
        assert not gone(pid)
        parent.kill()
    while not gone(pid):
        time.sleep(0.01)


def test_ports_are_the_wanted_ones_when_free() -> None:
    first, second = free_ports(0, 0)
    assert first != second
    assert free_ports(first) == [first]
    assert free_ports(first, first)[0] == first
    assert free_ports(first, first)[1] != first


def test_nobody_answers() -> None:
    assert not answers("http://127.0.0.1:1/")
