"""Keeping contracts true while the gateway runs: who is due, one run at a time, incidents told once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from backends.contract import Contradiction, PoolContract
from backends.contracts import Clock, ReplicaState
from backends.fleet import Fleet
from backends.probing.client import ProbeClient
from backends.probing.run import ProbeReport, Target, probe_pool, unprobed
from backends.probing.schedule import LastRun, Reason, Schedule, due
from backends.probing.session import Budget

log = structlog.get_logger("headrace.probing")


@dataclass(frozen=True, slots=True)
class Watched:
    """One pool to keep probed. `client` makes a client for the replica with that URL."""

    target: Target
    client: Callable[[str], ProbeClient]
    schedule: Schedule
    budget: Budget
    golden: bool = True
    urls: frozenset[str] = frozenset()  # of all its replicas


class ContractWatcher:
    """Owner of all contracts. Runs follow each other, so that probing never loads more than one replica."""

    __slots__ = ("_clock", "_fleet", "_last", "_on_contract", "_on_incident", "_pools", "contracts")

    def __init__(
        self,
        pools: Mapping[str, Watched],
        fleet: Fleet,
        clock: Clock,
        *,
        on_contract: Callable[[PoolContract], None],
        on_incident: Callable[[Contradiction], None],
    ) -> None:
        """`on_contract` hears of every new contract, `on_incident` of every contradiction that is new."""
        self._pools = dict(pools)
        self._fleet = fleet
        self._clock = clock
        self._on_contract = on_contract
        self._on_incident = on_incident
        self._last: dict[str, LastRun] = {}
        self.contracts: dict[str, PoolContract] = {name: unprobed(watched.target) for name, watched in pools.items()}

    def apply(self, pools: Mapping[str, Watched]) -> None:
        """Watch these pools from now on.

        One whose target stays keeps its contract, and the time of its last run unless all its replicas are new.
        """
        old = self._pools
        stays = {name for name, watched in pools.items() if name in old and old[name].target == watched.target}
        seen = {name for name in stays if old[name].urls == pools[name].urls or old[name].urls & pools[name].urls}
        self._pools = dict(pools)
        self._last = {name: last for name, last in self._last.items() if name in seen}
        self.contracts = {
            name: self.contracts[name] if name in stays else unprobed(watched.target) for name, watched in pools.items()
        }

    async def run(self, tick_s: float = 1.0) -> None:
        """Probe what is due, for ever."""
        while True:
            await self.step()
            await asyncio.sleep(tick_s)

    async def step(self) -> None:
        """One round over all pools."""
        for name, watched in tuple(self._pools.items()):
            snapshot = self._fleet.snapshot()
            ready = [replica for replica in snapshot.by_pool.get(name, ()) if replica.state is ReplicaState.READY]
            if not ready:
                continue
            in_flight = sum(snapshot.table.exchanges[replica.row] for replica in ready) / len(ready)
            quietest = min(ready, key=lambda replica: snapshot.table.exchanges[replica.row])
            reason = due(
                watched.schedule,
                self._last.get(name),
                now_s=self._clock.monotonic(),
                version=quietest.version,
                in_flight=in_flight,
            )
            if reason is not None:
                log.info("probing", pool=name, replica=quietest.id, reason=reason.value)
                report = await probe_pool(
                    watched.target,
                    watched.client(quietest.url),
                    clock=self._clock,
                    golden=watched.golden,
                    budget=watched.budget,
                    earlier=None if reason is Reason.VERSION else self.contracts[name],
                )
                self._take(name, report, quietest.version)

    def _take(self, name: str, report: ProbeReport, version: str) -> None:
        if name not in self._pools:  # it left during the run
            return
        self._last[name] = LastRun(self._clock.monotonic(), version, report.complete)
        known = [(entry.term, entry.declared, entry.probed) for entry in self.contracts[name].contradictions]
        self.contracts[name] = report.contract
        for incident in report.incidents:
            if (incident.term, incident.declared, incident.probed) not in known:
                log.warning("contract contradicted", pool=name, term=incident.term, said=str(incident))
                self._on_incident(incident)
        self._on_contract(report.contract)
