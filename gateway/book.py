"""The contracts in use: what each pool can do, as the filter and the codecs want it, kept true by probing."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping, Sequence

import aiohttp
import structlog

from backends.capabilities import Capabilities, capabilities
from backends.contract import Contradiction, PoolContract
from backends.contracts import Clock
from backends.engines.base import Registry
from backends.fleet import Fleet
from backends.probing import AiohttpProbe, Budget, unprobed
from backends.probing import Target as Aim
from backends.probing.schedule import Schedule
from backends.probing.watch import ContractWatcher, Watched
from backends.supervisor import Supervisor
from deploy.recipes import Catalogue
from gateway.config.model import Config, Pool
from gateway.config.pairs import prefill_pools
from gateway.contracts import target
from gateway.dialects.target import Target
from gateway.requirements import speaking
from policies.compatibility import check_pair

log = structlog.get_logger("headrace.contracts")

_INCIDENTS = 256
_TEXT_PATH = "/v1/chat/completions"


class ContractBook:
    """Contract, capabilities and codec view of every pool. Before the first probe a contract says what is declared."""

    __slots__ = (
        "_aims",
        "_bases",
        "_catalogue",
        "_clock",
        "_config",
        "_count",
        "_fleet",
        "_kinds",
        "_task",
        "_watcher",
        "capabilities",
        "contracts",
        "incidents",
        "room",
        "targets",
        "unfit",
    )

    def __init__(self, kinds: Registry, fleet: Fleet, clock: Clock, count: Callable[[str, str], None]) -> None:
        """`count(pool, term)` hears of every incident."""
        self._kinds = kinds
        self._fleet = fleet
        self._clock = clock
        self._count = count
        self._catalogue = Catalogue.read()
        self._config: Config | None = None
        self._aims: dict[str, Aim] = {}  # what to probe, by pool
        self._bases: Mapping[str, Target] = {}
        self._watcher: ContractWatcher | None = None
        self._task: asyncio.Task[None] | None = None
        # Tokens of prompt and output that every pool of a model has room for, for plain text on Chat; 0 when some pool
        # of it cannot take even that.
        self.room: dict[str, int] = {}
        self.contracts: dict[str, PoolContract] = {}
        self.capabilities: dict[str, Capabilities] = {}
        self.targets: dict[str, Target] = {}
        self.unfit: frozenset[str] = frozenset()  # decode pools that must not take their prefill pool's KV
        self.incidents: deque[Contradiction] = deque(maxlen=_INCIDENTS)  # the newest last

    def apply(self, config: Config, bases: Mapping[str, Target]) -> None:
        """Follow a configuration; `bases` are the codec views before any contract.

        A pool that is said to be what it was keeps what is known of it, whatever else of it changes. Exchanges that
        began before may still ask for a pool that has left: no replica of it is there, so they go elsewhere.
        """
        old, self._config, self._bases = self._aims, config, bases
        self._aims = {pool.name: target(pool, self._kinds, self._catalogue) for pool in config.pools}
        for name, aim in self._aims.items():
            known = self.contracts.get(name) if old.get(name) == aim else None
            self._take(known or unprobed(aim))
        for name in self.contracts.keys() - self._aims.keys():
            del self.contracts[name]
        self._measure_room()
        self._compare_pairs()

    def watch(self, session: aiohttp.ClientSession, supervisor: Supervisor) -> None:
        """Probe from now on, by the configuration of the last `apply`."""
        if self._config is None:
            return
        pools = {pool.name: self._watched(pool, session) for pool in self._config.pools}
        if self._watcher is not None:
            self._watcher.apply(pools)
            return
        self._watcher = ContractWatcher(
            pools, self._fleet, self._clock, on_contract=self._learned, on_incident=self._contradicted
        )
        self._task = supervisor.spawn(self._watcher.run(), "contracts")

    def of(self, pools: Sequence[str]) -> list[Capabilities]:
        """Capabilities of these pools, in this order."""
        return [self.capabilities[name] for name in pools]

    def _watched(self, pool: Pool, session: aiohttp.ClientSession) -> Watched:
        key = pool.api_key.get_secret_value() if pool.api_key else None
        return Watched(
            target=self._aims[pool.name],
            client=lambda url: AiohttpProbe(session, url, api_key=key),
            schedule=Schedule(pool.probe.golden_interval_s, pool.probe.quiet_exchanges),
            budget=Budget(pool.probe.golden_requests, pool.probe.golden_tokens),
            golden=pool.probe.golden and not self._is_half(pool),
            urls=frozenset(pool.replicas),
        )

    def _is_half(self, pool: Pool) -> bool:
        """Whether a replica of this pool answers nothing without a partner, so that generating tells nothing of it."""
        handover = self._kinds[pool.engine].handover
        if handover is None or handover.alone or self._config is None:
            return False
        return pool.prefill is not None or pool.name in prefill_pools(self._config)

    def _learned(self, contract: PoolContract) -> None:
        if contract.pool in self._bases:
            self._take(contract)
            self._measure_room()
            self._compare_pairs()

    def _contradicted(self, incident: Contradiction) -> None:
        self.incidents.append(incident)
        self._count(incident.pool, incident.term)

    def _take(self, contract: PoolContract) -> None:
        name = contract.pool
        self.contracts[name] = contract
        self.capabilities[name] = capabilities(contract)
        self.targets[name] = speaking(self._bases[name], contract)

    def _compare_pairs(self) -> None:
        """Keep decode pools from the KV of a prefill pool that turned out to be unlike them."""
        for pool in self._config.pools if self._config is not None else ():
            prefill = self.contracts.get(pool.prefill.pool) if pool.prefill is not None else None
            if prefill is None:
                continue
            findings = check_pair(prefill, self.contracts[pool.name])
            refused = [finding.message for finding in findings if finding.severity == "refuse"]
            if refused and pool.name not in self.unfit:
                log.warning("prefill/decode pair not used", pool=pool.name, reason="; ".join(refused))
            self.unfit = self.unfit | {pool.name} if refused else self.unfit - {pool.name}

    def _measure_room(self) -> None:
        if self._config is None:
            return
        self.room = {model.name: min(map(_room, self.of(model.pools))) for model in self._config.models}


def _room(pool: Capabilities) -> int:
    takes = not pool.held and (pool.endpoints is None or _TEXT_PATH in pool.endpoints)
    return min(pool.window, pool.max_output) if takes else 0
