"""The router: from a request and a fleet snapshot to a decision, in one straight line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import xxhash

from backends.contracts import TIERS, Candidate, Clock, Decision, FleetSnapshot, Random, Replica, ReplicaState
from backends.located import Located
from policies.cost_model.model import CostModel
from policies.inflight import PeerTable
from policies.routing.backlog import Backlog
from policies.routing.registry import Case, Policy, Ranking, Registry
from policies.routing.request import PoolShare, RouteRequest
from policies.routing.view import FleetView, Slate

Explain = Callable[[], tuple[Candidate, ...]]


class Router:
    """Decides for one process. Holds the policies' own memory and a columnar view of the newest snapshot.

    "Decide again" needs a fresh router over the same registry: a decision moves the memory of its policy.
    """

    __slots__ = ("_backlog", "_clock", "_default", "_policies", "_registry", "_view")

    def __init__(
        self, registry: Registry, clock: Clock, *, default: str = "latency", peers: PeerTable | None = None
    ) -> None:
        if default not in registry:
            raise ValueError(f"unknown routing policy {default!r}; known: {', '.join(registry)}")
        self._registry = registry
        self._clock = clock
        self._default = default
        self._policies: dict[str, Policy] = {}
        self._view = FleetView(peers)
        self._backlog = Backlog()

    def looks_up(self, policy: str) -> bool:
        """Whether `policy` ("" for the default) asks where prompts are cached. Raises KeyError for an unknown one."""
        return self._registry.looks_up(policy or self._default)

    def decide(
        self,
        request: RouteRequest,
        located: Located | None,
        snapshot: FleetSnapshot,
        cost_model: CostModel,
        rng: Random,
    ) -> Decision:
        """Choose a replica. `order` is empty when no replica is left; an unknown policy name raises KeyError."""
        now_s = self._clock.monotonic()
        if self._view.refresh(snapshot):
            cost_model.align(snapshot, now_s)
            self._backlog.align(snapshot)
        cost_model.tick(now_s)
        name = request.policy or self._default
        slate = self._slate(request, rng)
        if not slate:
            return Decision(policy=name, order=(), explain=partial(_evidence, request, snapshot, slate, None))
        case = Case(request, slate, self._view, located, cost_model, self._backlog, rng, now_s)
        ranking = self._policy(name).rank(case)
        if ranking.charge is not None:
            work = ranking.charge
            self._backlog.charge(
                ranking.rows[0], now_s, prefill_ms=work.prefill_ms, link_ms=work.link_ms, fs_ms=work.fs_ms
            )
        return _decision(name, request, snapshot, slate, ranking, located)

    def _policy(self, name: str) -> Policy:
        policy = self._policies.get(name)
        if policy is None:
            policy = self._policies[name] = self._registry.make(name)
        return policy

    def _slate(self, request: RouteRequest, rng: Random) -> Slate:
        """READY replicas of the pools this exchange may see, less those excluded."""
        pools = request.pools
        if _has_canary(pools):
            dice = _dice(request.session, rng)
            pools = tuple(pool for pool in pools if pool.share >= 1.0 or dice < pool.share)
        slate = self._view.slate(pools)
        return self._view.without(slate, request.exclude) if request.exclude else slate


def _has_canary(pools: tuple[PoolShare, ...]) -> bool:
    for pool in pools:  # noqa: SIM110 - a generator would cost more than the rest of the function
        if pool.share < 1.0:
            return True
    return False


def _dice(session: str, rng: Random) -> float:
    """A number in [0, 1): the same one for every turn of a session, so that it stays on its side of a canary."""
    return xxhash.xxh3_64_intdigest(session.encode()) / 2**64 if session else rng.random()


def _decision(
    name: str,
    request: RouteRequest,
    snapshot: FleetSnapshot,
    slate: Slate,
    ranking: Ranking,
    located: Located | None,
) -> Decision:
    order = tuple([snapshot.replicas[row] for row in ranking.rows])
    expected = ranking.expected
    return Decision(
        policy=name,
        order=order,
        predicted_ttft_ms=expected.ttft_ms if expected else 0.0,
        predicted_cached=dict(zip(TIERS, expected.by_tier, strict=True)) if expected else {},
        expected=expected,
        prefill_tokens=request.prompt_tokens if ranking.prefill_tokens is None else ranking.prefill_tokens,
        load_tiers=ranking.load_tiers,
        dp_rank=_dp_rank(request, order[0], located),
        explain=partial(_evidence, request, snapshot, slate, ranking),
    )


def _dp_rank(request: RouteRequest, replica: Replica, located: Located | None) -> int | None:
    """The rank that holds the longest match, else one that the prompt's head always maps to."""
    if replica.dp_ranks <= 1:
        return None
    if located is not None and located.dp_rank is not None and located.dp_rank[replica.row] >= 0:
        return int(located.dp_rank[replica.row])
    return request.prefix_key % replica.dp_ranks if request.prefix_key else None


def _evidence(
    request: RouteRequest, snapshot: FleetSnapshot, slate: Slate, ranking: Ranking | None
) -> tuple[Candidate, ...]:
    """Every replica of the request's pools: cost terms of those that stood, a reason for those that did not."""
    terms = ranking.terms() if ranking is not None and ranking.terms is not None else {}
    stood = set(slate.rows)
    names = {pool.name for pool in request.pools}
    out = []
    for row, replica in enumerate(snapshot.replicas):
        if row in stood:
            costs = terms.get(row, {})
            out.append(Candidate(replica.id, sum(costs.values()), costs))
        elif replica.pool in request.refused:
            out.append(Candidate(replica.id, filtered=request.refused[replica.pool]))
        elif replica.pool in names:
            out.append(Candidate(replica.id, filtered=_why_not(replica.id, replica.state, replica.reason, request)))
    return tuple(out)


def _why_not(replica_id: str, state: ReplicaState, reason: str, request: RouteRequest) -> str:
    if state is not ReplicaState.READY:
        return f"{state.value}: {reason}" if reason else state.value
    return "tried before" if replica_id in request.exclude else "outside the canary share"
