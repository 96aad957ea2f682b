"""What follows from one configuration, made once per reload and swapped as a whole."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import cast

from backends.engines.base import EngineKind, Registry
from backends.fleet import PoolSpec
from backends.profiles import EngineName, load_profile, profile_names
from gateway.auth import Authenticator, Identity
from gateway.config.model import Config, Model, Pool
from gateway.config.resolve import ModelTable
from gateway.dialects.registry import DecodeOptions
from gateway.dialects.seal import Keys, Seal, Sealer
from gateway.dialects.target import Target
from policies.cost_model.facts import PoolFacts
from policies.routing.request import PoolShare


@dataclass(frozen=True, slots=True)
class PoolRuntime:
    """A pool as an exchange needs it."""

    config: Pool
    kind: EngineKind
    target: Target
    authorization: bytes  # header line towards the engine, or b""
    heartbeat_s: float  # of silence towards clients that stream
    announcement: bytes  # header line that tells clients the pool


class Runtime:
    """One configuration in use. Exchanges keep the one they began with."""

    __slots__ = ("_options", "_sealer", "_seals", "alone", "auth", "config", "models", "paired", "partners", "pools",
                 "shares")  # fmt: skip

    def __init__(self, config: Config, kinds: Registry, fallback_keys: Keys, nonce: Callable[[int], bytes]) -> None:
        """`fallback_keys` seal reasoning when the configuration names no key."""
        self.config = config
        self.auth = Authenticator(config.auth.mode, config.tenants)
        self.models = ModelTable(config.models)
        self.pools: Mapping[str, PoolRuntime] = {pool.name: _pool(config, pool, kinds) for pool in config.pools}
        self.shares: Mapping[str, tuple[PoolShare, ...]] = {
            model.name: tuple(PoolShare(name, self.pools[name].config.weight) for name in model.pools)
            for model in config.models
        }
        self.partners = {
            pool.name: (PoolShare(pool.prefill.pool, self.pools[pool.prefill.pool].config.weight),)
            for pool in config.pools
            if pool.prefill is not None
        }
        self.alone = frozenset(name for name in self.partners if _alone(self.pools[name].kind))
        # Models some of whose exchanges are divided between two replicas.
        self.paired = frozenset(model.name for model in config.models if self.partners.keys() & set(model.pools))
        secrets = [key.get_secret_value() for key in config.reasoning.seal_keys]
        self._sealer = Sealer(Keys.of_secret(*secrets) if secrets else fallback_keys, nonce)
        self._seals: dict[Identity, Seal] = {}
        self._options: dict[Identity, DecodeOptions] = {}

    def seal(self, identity: Identity) -> Seal:
        """What seals and opens this tenant's reasoning."""
        seal = self._seals.get(identity)
        if seal is None:
            seal = self._seals[identity] = self._sealer.of(identity.name)
        return seal

    def options(self, identity: Identity) -> DecodeOptions:
        """How this tenant's requests are read; made once per key."""
        options = self._options.get(identity)
        if options is None:
            options = self._options[identity] = DecodeOptions(
                seal=self.seal(identity),
                grants=identity.grants,
                choices=self.config.limits.choices,
                store=self.config.state.store_responses,
            )
        return options

    def policy(self, identity: Identity, model: Model) -> str:
        """Routing profile of an exchange: the tenant's, else the model's, else the default ("")."""
        return identity.tenant.routing or model.routing or ""

    def bases(self) -> Mapping[str, Target]:
        """The pools as codecs see them before any contract."""
        return {name: pool.target for name, pool in self.pools.items()}

    def specs(self) -> tuple[PoolSpec, ...]:
        """The pools as the fleet sees them."""
        return tuple(_spec(pool) for pool in self.config.pools)


def _pool(config: Config, pool: Pool, kinds: Registry) -> PoolRuntime:
    kind = kinds[pool.engine]
    target = Target(
        engine=pool.engine,
        model=pool.model,
        reasoning_field=kind.spec.reasoning_field,
        messages_show_thinking=config.reasoning.messages_show_thinking,
        responses_reasoning=config.reasoning.responses_reasoning,
        frame_failure=kind.frame_failure,
    )
    key = pool.api_key.get_secret_value() if pool.api_key else ""
    authorization = f"authorization: Bearer {key}\r\n".encode() if key else b""
    announcement = f"x-gateway-pool: {pool.name}\r\n".encode()
    return PoolRuntime(pool, kind, target, authorization, config.listen.heartbeat_after_s, announcement)


def _alone(kind: EngineKind) -> bool:
    return kind.handover is not None and kind.handover.alone


def _spec(pool: Pool) -> PoolSpec:
    return PoolSpec(
        name=pool.name,
        engine=pool.engine,
        model=pool.model,
        urls=pool.replicas,
        api_key=pool.api_key.get_secret_value() if pool.api_key else None,
        connect_s=pool.timeouts.connect_s,
        probe_interval_s=pool.probe.interval_s,
        probe_timeout_s=pool.probe.timeout_s,
        breaker_failures=pool.breaker.failures if pool.breaker.enabled else 0,
        breaker_open_s=pool.breaker.open_s,
        silent_s=pool.breaker.silent_s,
    )


def pool_facts(config: Config) -> dict[str, PoolFacts]:
    """What the configuration says of the speed of its pools; those without a known hardware profile are left out."""
    known = profile_names()
    return {
        pool.name: PoolFacts(
            load_profile(pool.hardware, cast("EngineName", pool.engine)),
            gpus=pool.gpus or 1,
            price_per_gpu_hour=pool.price_per_gpu_hour,
            obeys_load_tiers=pool.obeys_load_tiers,
        )
        for pool in config.pools
        if pool.hardware in known and pool.hardware is not None
    }
