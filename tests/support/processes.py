"""Processes in their own session: their output goes to a file and their whole group is gone at the end."""

from __future__ import annotations

import os
import signal
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

PROXY_VARIABLES = ("http_proxy", "https_proxy", "all_proxy", "no_proxy")
POLL_S = 0.05


class StartError(Exception):
    """A program did not come up; the message names its log."""


@contextmanager
def running(
    argv: Sequence[str],
    log: Path,
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    grace_s: float = 10.0,
) -> Iterator[subprocess.Popen[bytes]]:
    """A process with both outputs in `log`. At the end SIGTERM, and after `grace_s` SIGKILL to all of its group."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            argv,
            env=environment() | dict(env or {}),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            yield process
        finally:
            end(process, grace_s)


def end(process: subprocess.Popen[bytes], grace_s: float) -> None:
    """End a process that leads its group, and whatever it has left behind in the group."""
    process.terminate()
    with suppress(subprocess.TimeoutExpired):
        process.wait(grace_s)
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait(grace_s)


def environment() -> dict[str, str]:
    """This environment without proxies: everything tested is on loopback."""
    return {key: value for key, value in os.environ.items() if key.lower() not in PROXY_VARIABLES}


def wait_for(url: str, process: subprocess.Popen[bytes], log: Path, limit_s: float) -> None:
    """Wait until `url` answers 200. StartError after `limit_s`, or when the process has ended."""
    deadline, last = time.monotonic() + limit_s, "nothing"
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise StartError(f"ended with status {process.returncode} before {url} answered:\n{tail(log)}")
        try:
            with urllib.request.urlopen(url, timeout=3):
                return
        except urllib.error.HTTPError as error:
            last = f"status {error.code}"
        except OSError as error:
            last = str(error)
        time.sleep(POLL_S)
    raise StartError(f"{url} was not ready within {limit_s:.0f} s ({last}):\n{tail(log)}")


def tail(log: Path, lines: int = 15) -> str:
    """The end of a log."""
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:])
