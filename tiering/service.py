"""The one door to tiering: before an exchange, where its prompt is cached; after it, whether that was true.

    plan = service.plan(snapshot, pools, prompt)          plan.located goes to routing
    expected = service.sent(plan, replica)                when an attempt is dispatched
    verdict = service.observe(expected, reported)         when the engine has said what it found in its cache

Synchronous, without sockets. Everything but `prepare` belongs to the thread of the index's writer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from backends.contracts import TIERS, Clock, FleetSnapshot, Replica
from backends.located import Located
from tiering.approximate import ApproximateIndex
from tiering.hashing.scheme import Tokens
from tiering.hashing.text import TextHasher, block_bytes
from tiering.index.memory import I64
from tiering.index.prefix import PrefixIndex
from tiering.index.reader import Rows
from tiering.plan import Expected, Plan, PoolKv, PoolPlan, PoolPrompt, Prompt
from tiering.tokens import UntokenizableError
from tiering.truth.accuracy import Change, Prediction, Reported, TruthLoop, Verdict, is_correct
from tiering.truth.causes import Cause
from tiering.truth.evidence import gather

HEAVY_BYTES = 128 * 1024  # about 32 K tokens: template, tokenizer and hashes take milliseconds from here on
_LOSS_MATTERS_S = 300.0  # after a loss of events
_CHANGES = 256  # kept until somebody asks


class KvService:
    """Plans and observes exchanges."""

    __slots__ = (
        "_approximate",
        "_changes",
        "_clock",
        "_index",
        "_lost_at",
        "_pools",
        "_text",
        "_view",
        "told",
        "truth",
    )

    def __init__(
        self,
        index: PrefixIndex,
        clock: Clock,
        pools: Sequence[PoolKv],
        *,
        lost_at: Callable[[str], float | None] = lambda _replica: None,
    ) -> None:
        self._index = index
        self._clock = clock
        self._pools = {pool.name: pool for pool in pools}
        self._lost_at = lost_at  # EventFeed.lost_at
        self._text = TextHasher()
        self._approximate = ApproximateIndex(clock)
        self._changes: list[Change] = []
        self.told: Counter[tuple[str, str]] = Counter()
        self._view: tuple[tuple[int, int], Rows, dict[str, I64]] | None = None
        self.truth = TruthLoop()

    def set_pools(self, pools: Iterable[PoolKv]) -> None:
        """Look for exactly these pools from now on. What is known of predictions stays, but of pools that have left.

        Exchanges that began before may still ask for one that has left: it is looked up by text.
        """
        old, self._pools = self._pools, {pool.name: pool for pool in pools}
        for name in old.keys() - self._pools.keys():
            self.truth.forget(name)
        self.told = Counter({key: count for key, count in self.told.items() if key[0] in self._pools})

    def heavy(self, pools: Sequence[str], prompt: Prompt) -> bool:
        """Whether `prepare` would hold up the loop: call it in a thread then, and hand `plan` the result."""
        return prompt.size > HEAVY_BYTES and any(self._is_exact(self._pool(name), prompt) for name in pools)

    def prepare(self, pools: Sequence[str], prompt: Prompt) -> dict[str, PoolPrompt]:
        """The prompt's chain in every pool: the part of `plan` that takes long, and may run in any thread."""
        prepared: dict[str, PoolPrompt] = {}
        for name in pools:
            pool = self._pool(name)
            same = next((other for other in prepared.values() if other.pool.shares_with(pool)), None)
            exact = self._is_exact(pool, prompt)
            if same is not None and exact == (same.tokens is not None):
                prepared[name] = replace(same, pool=pool)
            else:
                prepared[name] = self._prepare(pool, prompt, exact=exact)
        return prepared

    def plan(
        self,
        snapshot: FleetSnapshot,
        pools: Sequence[str],
        prompt: Prompt,
        prepared: Mapping[str, PoolPrompt] | None = None,
    ) -> Plan:
        """Where the prompt is cached, for every replica of `pools` in the snapshot."""
        rows, pool_rows = self._rows(snapshot)
        reach = np.zeros((len(TIERS), rows.count), np.int64)
        confidence = np.ones(rows.count)
        dp_rank = np.full(rows.count, -1, np.int64) if rows.ranked else None
        plans: dict[str, PoolPlan] = {}
        looked_up: dict[int, Located] = {}
        for name, here in (prepared or self.prepare(pools, prompt)).items():
            located = looked_up.get(id(here.chain))
            if here.tokens is None:
                members = snapshot.by_pool.get(name, ())
                located = Located(self._approximate.locate(here.chain, members, rows.count))
            elif located is None:
                located = looked_up[id(here.chain)] = self._index.locate(here.chain, rows)
            plans[name] = PoolPlan(here, located.reach, located.dp_rank)
            mine = pool_rows.get(name)
            if mine is None or self.truth.demoted(name):
                continue
            reach[:, mine] = located.reach[:, mine]
            if dp_rank is not None and located.dp_rank is not None:
                dp_rank[mine] = located.dp_rank[mine]
            if here.tokens is None:
                confidence[mine] = [self._approximate.confidence(replica.id) for replica in snapshot.by_pool[name]]
        return Plan(prompt, Located(reach, confidence, dp_rank), plans)

    def sent(self, plan: Plan, replica: Replica) -> Expected:
        """The prompt goes to `replica`."""
        mine = plan.pools[replica.pool]
        here = mine.prompt
        age_s: float | None = None
        held = np.diff(mine.reach[:, replica.row], prepend=0).tolist()
        block, unseen = here.chain.block, 0
        if here.tokens is None:
            block, unseen = here.pool.block, _unseen(here, sum(held))
            age_s = self._approximate.age(replica.id, here.chain)
            self._approximate.set_capacity(replica.id, replica.load.kv_capacity_tokens)
            self._approximate.sent(replica.id, here.chain)
        prediction = Prediction(
            pool=replica.pool,
            replica=replica.id,
            tenant=plan.prompt.tenant,
            dialect=plan.prompt.dialect,
            by_tier={tier: count for tier, count in zip(TIERS, held, strict=True) if count},
            tokens=len(here.tokens) if here.tokens is not None else None,
            block=block,
            unseen=unseen,
        )
        return Expected(plan.prompt, here, prediction, age_s)

    def observe(self, expected: Expected, reported: Reported) -> Verdict:
        """The engine said how much of the prompt it found in its cache."""
        pool, prediction = expected.here.pool, expected.prediction
        pool.learn(expected.prompt.size, reported.cached, reported.tokens)
        if not prediction.exact:
            self._approximate.correct(
                prediction.replica, expected.here.chain, prediction.cached, reported.cached, expected.age_s
            )
        if pool.name not in self._pools:
            return Verdict(is_correct(prediction, reported))  # it has left: nobody keeps score any more
        lost = self._lost(prediction.replica)
        verdict = self.truth.observe(prediction, reported, lambda: gather(expected, reported, events_lost=lost))
        if verdict.change:
            self._tell(verdict.change)
        return verdict

    def changes(self) -> list[Change]:
        """What has changed since the last call: for logs. `told` counts them by pool and what it changed to."""
        changes, self._changes = self._changes, []
        return changes

    def emptied(self, replica: str) -> None:
        """The replica's process has ended, or the replica has left: what our own decisions put there is gone.

        What its events have told is the feed's affair: it sees for itself whether the process is another.
        """
        self._approximate.forget(replica)

    def expire(self) -> None:
        """Drop what has outlived its usual life in pools without events. Call every few seconds."""
        self._approximate.expire()

    def _rows(self, snapshot: FleetSnapshot) -> tuple[Rows, dict[str, I64]]:
        key = (snapshot.version, self._index.names_version)
        if self._view is None or self._view[0] != key:
            pool_rows = {
                name: np.array([replica.row for replica in members], np.int64)
                for name, members in snapshot.by_pool.items()
                if members
            }
            self._view = (key, self._index.rows(snapshot.replicas), pool_rows)
        return self._view[1], self._view[2]

    def _pool(self, name: str) -> PoolKv:
        return self._pools.get(name) or PoolKv(name)

    def _prepare(self, pool: PoolKv, prompt: Prompt, *, exact: bool) -> PoolPrompt:
        tokens = self._tokens(pool, prompt) if exact else None
        if tokens is not None and pool.hasher is not None:
            return PoolPrompt(pool, pool.hasher.chain(tokens, prompt.extras), tokens)
        extras = prompt.extras
        seed = self._text.seed(prompt.model, prompt.tenant, extras.salt, extras.lora_name, prompt.tools)
        chain = self._text.chain_of(prompt.segments, seed)
        return PoolPrompt(pool, chain.chain(int(prompt.size / pool.bytes_per_token)), None)

    def _is_exact(self, pool: PoolKv, prompt: Prompt) -> bool:
        if pool.hasher is None or (pool.tokenizer is None and prompt.token_ids is None):
            return False
        exact = pool.check is None or pool.check.trusted
        if exact != pool.exact:
            pool.exact = exact
            ratio = (pool.check.ratio if pool.check else None) or 0.0
            wrong_size = pool.check is not None and pool.check.block_size not in {0, pool.hasher.scheme.block}
            cause = None if exact else Cause.BLOCK_SIZE if wrong_size else Cause.HASH_SEED
            self._tell(Change(pool.name, "exact" if exact else "text", ratio, cause))
        return exact

    @staticmethod
    def _tokens(pool: PoolKv, prompt: Prompt) -> Tokens | None:
        if prompt.token_ids is not None:
            return prompt.token_ids
        if pool.tokenizer is None or prompt.messages is None:
            return None
        try:
            return pool.tokenizer.chat(prompt.messages(), **prompt.variables)
        except UntokenizableError:
            return None

    def _lost(self, replica: str) -> bool:
        lost = self._lost_at(replica)
        return lost is not None and self._clock.monotonic() - lost < _LOSS_MATTERS_S

    def _tell(self, change: Change) -> None:
        self._changes = [*self._changes, change][-_CHANGES:]
        self.told[change.pool, change.to] += 1


def _unseen(here: PoolPrompt, cached: int) -> int:
    """Tokens of the text block in which a match of `cached` tokens ended."""
    matched = int(np.searchsorted(here.chain.ends, cached))
    return int(block_bytes(matched) / here.pool.bytes_per_token)
