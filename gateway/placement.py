"""Where an exchange may go, where its prompt is cached, and which replica gets it."""

from __future__ import annotations

from collections.abc import Mapping

from backends.contracts import Clock, Decision, Random, Replica
from backends.fleet import Fleet
from gateway.book import ContractBook
from gateway.dialects.model import Request
from gateway.eligible import Eligible, PoolFilter
from gateway.exchange import Exchange
from gateway.kv.cache import KvCache
from gateway.kv.prompts import prompt_of
from gateway.runtime import Runtime
from policies.affinity import AffinityTable, session_key
from policies.cost_model.costs import Costs
from policies.routing.request import PoolShare, RouteRequest
from policies.routing.router import Router

BYTES_PER_TOKEN = 4  # where nothing better is known
_TEMPLATE_TOKENS = 64  # what a chat template adds around the messages, at most
_NOBODY: Mapping[str, str] = {}


class Placement:
    """Joins contracts, cache look-up and routing: what policies and tiering know of each other, they know from here."""

    __slots__ = ("_affinity", "_book", "_clock", "_costs", "_filter", "_fleet", "_kv", "_rng", "_router")

    def __init__(
        self,
        *,
        fleet: Fleet,
        router: Router,
        costs: Costs,
        affinity: AffinityTable,
        book: ContractBook,
        pool_filter: PoolFilter,
        kv: KvCache,
        clock: Clock,
        rng: Random,
    ) -> None:
        self._fleet = fleet
        self._router = router
        self._costs = costs
        self._affinity = affinity
        self._book = book
        self._filter = pool_filter
        self._kv = kv
        self._clock = clock
        self._rng = rng

    def everyday(self, x: Exchange) -> bool:
        """Whether any pool of the model may serve this wherever its prompt is cached, which then is noted.

        Else the contracts must be asked, or the cache.
        """
        if x.model.name in x.runtime.paired or self._router.looks_up(x.policy):
            return False
        eligible = at_once(x.runtime, self._book, x.model.name, x.asked)
        if eligible is None:
            return False
        x.eligible = eligible
        return True

    async def consider(self, x: Exchange) -> None:
        """Ask the contracts, and the cache where the policy wants to know. Raises GatewayError."""
        eligible = at_once(x.runtime, self._book, x.model.name, x.asked)
        x.eligible = eligible or await self._filter.decide(x.runtime, x.model.name, x.asked, x.dialect)
        if self._router.looks_up(x.policy):
            await self._look_up(x)

    def choose(self, x: Exchange, tried: frozenset[str] = frozenset()) -> Replica | None:
        """The best replica that was not tried; spare pools come when no other has one left.

        The decode side of a pair that failed may be well: it is tried again, with another partner or alone.
        """
        was_pair = bool(tried) and x.decision.prefill is not None
        replica = self._choose(x, tried)
        if replica is None and was_pair:
            prefilling = {share.name for shares in x.runtime.partners.values() for share in shares}
            return self._choose(x, frozenset(one for one in tried if one.rpartition("/")[0] in prefilling))
        return replica

    def _choose(self, x: Exchange, tried: frozenset[str]) -> Replica | None:
        for pools in (x.eligible.pools, x.eligible.spare):
            if pools and (order := self._decide(x, pools, tried).order):
                return order[0]
        return None

    async def _look_up(self, x: Exchange) -> None:
        """Find where the prompt is cached and who served the conversation last."""
        asked = x.asked
        hints = {"prompt_cache_key": asked.cache_key, "session_id": asked.session, "user": asked.end_user}
        x.session = session_key(x.identity.name, hints)
        x.home = x.home or self._affinity.home(x.session, self._clock.monotonic())
        shares = (*x.eligible.pools, *x.eligible.spare)
        partners = [one for share in shares for one in x.runtime.partners.get(share.name, ())]
        names = [share.name for share in (*shares, *partners)]
        sent = x.dialect.encode_engine_request(asked, self._book.targets[names[0]])
        prompt = prompt_of(asked, sent, x.model.name, x.identity.name) if sent.generates else None
        if prompt is not None:
            x.plan = await self._kv.plan(self._fleet.snapshot(), names, prompt)

    def _decide(self, x: Exchange, pools: tuple[PoolShare, ...], tried: frozenset[str]) -> Decision:
        began = self._clock.monotonic()
        asked, plan = x.asked, x.plan
        request = RouteRequest(
            pools=pools,
            prompt_tokens=x.eligible.tokens or len(asked.body) // BYTES_PER_TOKEN,
            output_tokens=min(asked.max_output or 256, 256),
            policy=x.policy,
            tenant=x.identity.name,
            session=x.session,
            home=x.home,
            spill_after_ms=x.model.spill_after_ms,
            spill_back_ms=x.model.spill_back_ms,
            exclude=tried,
            refused=x.eligible.refused or _NOBODY,
        )
        if x.model.name in x.runtime.paired:
            partners, unfit = x.runtime.partners, self._book.unfit
            request.partners = {
                pool.name: () if pool.name in unfit else partners[pool.name] for pool in pools if pool.name in partners
            }
            request.alone = x.runtime.alone
        if plan is not None:
            chain = plan.pools[pools[0].name].prompt.chain
            request.prompt_tokens = x.eligible.tokens or chain.tokens
            request.chain = chain.keys.tolist()
            request.prefix_key = request.chain[0] if request.chain else 0
        located = plan.located if plan is not None else None
        decision = self._router.decide(request, located, self._fleet.snapshot(), self._costs.model, self._rng)
        x.decision = decision
        record = x.record
        if record.decision is None:  # the trace shows the first; later ones only leave out what was tried
            record.decision, record.deciding, record.decided = decision, began, self._clock.monotonic()
        return decision


def at_once(runtime: Runtime, book: ContractBook, model: str, asked: Request) -> Eligible | None:
    """All pools of a model for plain text that fits every one of them, as most exchanges are; else None.

    A JSON body has more bytes than its text has tokens, with what surrounds each message counted in.
    """
    if not asked.direct:
        return None
    most = len(asked.body) + _TEMPLATE_TOKENS + (asked.max_output or 0)
    return Eligible(runtime.shares[model]) if most <= book.room.get(model, 0) else None
