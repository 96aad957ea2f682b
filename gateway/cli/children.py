"""Child processes that never outlive their parent."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from gateway.cli.output import UserError

_PR_SET_PDEATHSIG = 1
_STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Children:
    """Processes in groups of their own, ended in reverse order on the way out: SIGTERM, then SIGKILL after `grace_s`.

    Each writes to `<folder>/<name>.log`. On Linux they also get SIGTERM when this process is killed outright.
    """

    def __init__(self, folder: Path, *, grace_s: float = 10.0) -> None:
        self._folder = folder
        self._grace_s = grace_s
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End them all. Stop signals are ignored meanwhile: an impatient second Ctrl-C must not leave any behind."""
        for number in _STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        for process in reversed(self._running.values()):
            _signal(process, signal.SIGTERM)
        deadline = time.monotonic() + self._grace_s
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(deadline - time.monotonic(), 0.0))
            _signal(process, signal.SIGKILL)  # what is left of the group, which may outlive its first process
            process.wait()

    def start(self, name: str, argv: Sequence[str], environ: Mapping[str, str]) -> None:
        """Start one process."""
        with self.log(name).open("wb") as log:
            self._running[name] = subprocess.Popen(  # noqa: S603 - programs of this distribution
                argv,
                env=dict(environ),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=self._die_with_parent,  # noqa: PLW1509 - there are no threads here
            )

    def wait_ready(self, name: str, url: str, limit_s: float) -> None:
        """Wait until `url` answers 200. Raises UserError with the end of the log when the process ends or is late."""
        deadline = time.monotonic() + limit_s
        while not answers(url):
            self.check()
            if time.monotonic() > deadline:
                raise UserError(f"{name} is not ready after {limit_s:.0f} s\n{self._tail(name)}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise UserError when any process has ended."""
        for name, process in self._running.items():
            if process.poll() is not None:
                raise UserError(f"{name} ended with status {process.returncode}\n{self._tail(name)}")

    def log(self, name: str) -> Path:
        """Where a process writes to."""
        return self._folder / f"{name}.log"

    def _tail(self, name: str) -> str:
        lines = self.log(name).read_text(errors="replace").splitlines()[-10:]
        return "\n".join(f"  {name}: {line}" for line in lines)

    def _die_with_parent(self) -> None:
        if self._libc is not None:
            self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def stop_on_signals() -> None:
    """Let SIGTERM and SIGHUP unwind this process as Ctrl-C does."""
    for number in _STOP_SIGNALS:
        signal.signal(number, _stop)


def _stop(*_: object) -> None:
    raise KeyboardInterrupt


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def answers(url: str) -> bool:
    """Whether a GET is answered with 200."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=2.0) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
        return False
    except OSError:
        return False


def free_ports(*wanted: int) -> list[int]:
    """Loopback ports that can be bound, all different: each as wanted when it is free, else (and for 0) any other."""
    with contextlib.ExitStack() as stack:
        return [stack.enter_context(_bound(port)).getsockname()[1] for port in wanted]


def _bound(wanted: int) -> socket.socket:
    """A socket that holds the wanted port, or any. It listens: only then is the port refused to others."""
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        probe.bind(("127.0.0.1", wanted))
        probe.listen()
    except OSError:
        probe.close()
        if wanted == 0:
            raise
        return _bound(0)
    return probe
