"""Endpoints under /sim: scripts, what was asked, exact state, faults at run time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

import msgspec

from backends.simulator.driver import Driver
from backends.simulator.faults import FaultPlan
from backends.simulator.generation import Generator
from backends.simulator.metrics import Counters
from backends.simulator.script import Script


class Hooks:
    """`answer` gives status and JSON body of one request, or None for a path that is no hook."""

    def __init__(
        self, script: Script, faults: FaultPlan, driver: Driver, generator: Generator, counters: Counters
    ) -> None:
        self._script = script
        self._faults = faults
        self._driver = driver
        self._generator = generator
        self._counters = counters
        self._table: Mapping[tuple[str, str], Callable[[bytes], Any]] = {
            ("POST", "/sim/script"): self._extend,
            ("GET", "/sim/requests"): lambda _: script.requests(),
            ("POST", "/sim/reset"): self._reset,
            ("GET", "/sim/state"): self._state,
            ("POST", "/sim/faults"): self._change_faults,
        }

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any] | None:
        """Errors of the caller are status 400 with what was wrong."""
        handler = self._table.get((method, path))
        if handler is None:
            return None
        try:
            return 200, handler(body)
        except (ValueError, msgspec.DecodeError) as error:
            return 400, {"error": str(error)}

    def _extend(self, body: bytes) -> Any:
        return {"steps": self._script.extend(body)}

    def _reset(self, body: bytes) -> Any:  # noqa: ARG002 - needs none
        self._script.clear()
        return {}

    def _state(self, body: bytes) -> Any:  # noqa: ARG002 - needs none
        state = asdict(self._driver.engine.state())
        counters = asdict(self._counters)
        return state | {"in_flight": self._generator.in_flight, "now_s": self._driver.now(), "counters": counters}

    def _change_faults(self, body: bytes) -> Any:
        self._faults.change(msgspec.json.decode(body, type=_FaultChange).spec)
        return {"faults": [asdict(fault) for fault in self._faults.active]}


class _FaultChange(msgspec.Struct, forbid_unknown_fields=True):
    spec: str
