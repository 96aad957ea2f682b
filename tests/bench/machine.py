"""What the bench reads from and asks of the kernel: CPU time and memory of process trees, cores, scheduling."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PROC = Path("/proc")
TICKS_PER_S = os.sysconf("SC_CLK_TCK")


def tree(root: int) -> list[int]:
    """Process ids of `root` and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                parent = int(_stat_fields(int(entry.name))[1])
            except OSError:
                continue  # ended while we looked
            children.setdefault(parent, []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        pid = queue.pop()
        found.append(pid)
        queue += children.get(pid, [])
    return found


@dataclass(frozen=True)
class CpuReading:
    """On-CPU time of a set of processes: by thread in ns, and in whole ticks, which also count ended threads."""

    threads_ns: dict[tuple[int, str], int] = field(default_factory=dict)
    ticks_s: float = 0.0

    def until(self, later: CpuReading) -> float:
        """CPU seconds between two readings."""
        exact = sum(ns - self.threads_ns.get(key, 0) for key, ns in later.threads_ns.items()) / 1e9
        coarse = later.ticks_s - self.ticks_s
        # The tick count is only better where threads have ended, and then by more than its own rounding.
        return max(exact, coarse) if abs(coarse - exact) > 0.1 * exact + 0.03 else exact


def cpu(pids: list[int]) -> CpuReading:
    """CPU time used so far by these processes; processes and threads that end meanwhile are left out."""
    threads: dict[tuple[int, str], int] = {}
    ticks = 0
    for pid in pids:
        with suppress(OSError):
            fields = _stat_fields(pid)
            ticks += int(fields[11]) + int(fields[12])
            for task in (PROC / str(pid) / "task").iterdir():
                with suppress(OSError):
                    threads[pid, task.name] = int((task / "schedstat").read_text().split()[0])
    return CpuReading(threads, ticks / TICKS_PER_S)


def memory_mb(pids: list[int]) -> tuple[float, float]:
    """Resident memory in MB (10^6 bytes), summed over processes: now and at its highest."""
    totals = {"VmRSS:": 0, "VmHWM:": 0}
    for pid in pids:
        try:
            lines = (PROC / str(pid) / "status").read_text().splitlines()
        except OSError:
            continue
        for line in lines:
            key, _, rest = line.partition("\t")
            if key in totals:
                totals[key] += int(rest.split()[0]) * 1024
    return totals["VmRSS:"] / 1e6, totals["VmHWM:"] / 1e6


def machine_busy_s() -> float:
    """CPU seconds used by everything on this machine since it started, idle and waiting left out."""
    fields = [int(x) for x in (PROC / "stat").read_text().split("\n", 1)[0].split()[1:]]
    return (sum(fields[:8]) - fields[3] - fields[4]) / TICKS_PER_S


@contextmanager
def cores(which: set[int]) -> Iterator[None]:
    """Pin this process, and so what it starts, to some cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, which)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def realtime(priority: int) -> bool:
    """Run this process and its children in SCHED_RR, so that other work on the machine decides less. False: refused.

    The kernel keeps about 5 % for everybody else, which shows in 99th percentiles.
    """
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except PermissionError:
        return False
    return True


def _stat_fields(pid: int) -> list[str]:
    """Fields of /proc/PID/stat after the command name, which may itself hold spaces; [1] is the parent's id."""
    return (PROC / str(pid) / "stat").read_text().rsplit(")", 1)[1].split()
