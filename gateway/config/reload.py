"""Hot reload: on SIGHUP and when a file changes, the new tree is swapped in whole, or refused and the old one kept."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

import structlog

from gateway.config.diff import Change, diff
from gateway.config.loader import Loaded
from gateway.config.model import Config
from gateway.config.problems import ConfigError

Load = Callable[[], Loaded]
Apply = Callable[[Config, tuple[Change, ...]], Awaitable[None]]
Fingerprint = dict[Path, tuple[int, int, int] | None]

_LOOK_S = 0.5

log = structlog.get_logger("headrace.config")


class Reloader:
    """Owner of the configuration in use.

    `load` reads and checks the file; `apply` switches the gateway over and is all or nothing: when it raises, the old
    configuration stays the one in use. Neither failure ever leaves this class.
    """

    def __init__(self, loaded: Loaded, load: Load, apply: Apply) -> None:
        self._loaded = loaded
        self._load = load
        self._apply = apply
        self._seen = fingerprint(loaded.files)  # the files to watch, as they were when last looked at
        self._asked = asyncio.Event()

    @property
    def config(self) -> Config:
        """The configuration in use."""
        return self._loaded.config

    def request(self) -> None:
        """Ask for a reload; several at once become one. For signal handlers."""
        self._asked.set()

    async def run(self, *, watch: bool = True) -> None:
        """Serve requests for a reload, by SIGHUP and (with `watch`) by changes of the files, until cancelled."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGHUP, self.request)
        try:
            async with asyncio.TaskGroup() as tasks:
                if watch:
                    tasks.create_task(self._watch(), name="config-watch")
                while True:
                    await self._asked.wait()
                    self._asked.clear()
                    await self.reload()
        finally:
            loop.remove_signal_handler(signal.SIGHUP)

    async def reload(self) -> bool:
        """Load, compare and switch over. False: refused, the reasons are in the log."""
        before = fingerprint(self._seen)
        try:
            loaded = await asyncio.to_thread(self._load)  # a big tree takes a while, and streams must not wait
            changes = diff(self.config, loaded.config)
            if changes:
                await self._apply(loaded.config, changes)
        except ConfigError as error:
            for problem in error.problems:
                log.error("config refused", source=error.source, problem=str(problem))
            self._remember(self._loaded.files | error.files, before)
            return False
        except Exception:
            log.exception("config refused", problem="it could not be applied; the old one stays in use")
            self._remember(self._loaded.files, before)
            return False
        self._loaded = loaded
        self._remember(loaded.files, before)
        _report(loaded, changes)
        return True

    def _remember(self, files: frozenset[Path], before: Fingerprint) -> None:
        """Watch `files` from now on. One written while it was being read differs from `before`: it is read again."""
        self._seen = {**fingerprint(files), **{file: stamp for file, stamp in before.items() if file in files}}

    async def _watch(self) -> None:
        """Ask for a reload whenever a file differs from what was loaded, once it has been left alone for one look.

        Files are looked at, because nobody tells of changes on network mounts. A look at a handful costs microseconds;
        a library that listens beside that costs memory, a thread and a slower start.
        """
        last = self._seen
        while True:
            await asyncio.sleep(_LOOK_S)
            now = fingerprint(self._seen)
            if self._seen != now == last:
                self.request()
            last = now


def fingerprint(files: Iterable[Path]) -> Fingerprint:
    """What tells two states of the files apart: time, size and inode; None for a missing file."""
    return {file: _stamp(file) for file in files}


def _stamp(file: Path) -> tuple[int, int, int] | None:
    try:
        stat = file.stat()
    except OSError:
        return None
    return stat.st_mtime_ns, stat.st_size, stat.st_ino


def _report(loaded: Loaded, changes: tuple[Change, ...]) -> None:
    for warning in loaded.warnings:
        log.warning("config", problem=str(warning))
    for change in changes:
        if change.needs_restart:
            log.warning("config change takes effect at the next start", change=str(change))
    log.info("config reloaded" if changes else "config unchanged", changes=[str(change) for change in changes])
