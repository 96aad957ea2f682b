"""The router: from a request and a fleet snapshot to a decision, in one straight line."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import xxhash
from msgspec.structs import replace

from backends.contracts import Candidate, Clock, Decision, FleetSnapshot, Random, Replica, ReplicaState, Tier
from policies.inflight import PeerTable
from policies.routing.registry import Case, Partner, Policy, Ranking, Registry
from policies.routing.request import PoolShare, RouteRequest
from policies.routing.view import FleetView, Slate

if TYPE_CHECKING:  # with numpy, which only policies that look up load
    from backends.located import Located
    from policies.cost_model.model import CostModel
    from policies.routing.columns import FleetColumns

Explain = Callable[[], tuple[Candidate, ...]]


class Router:
    """Decides for one process. Holds the policies' own memory and a view of the newest snapshot.

    "Decide again" needs a fresh router over the same registry: a decision moves the memory of its policy.
    """

    __slots__ = ("_clock", "_columns", "_default", "_looks_up", "_peers", "_policies", "_registry", "_view")

    def __init__(
        self, registry: Registry, clock: Clock, *, default: str = "latency", peers: PeerTable | None = None
    ) -> None:
        if default not in registry:
            raise ValueError(f"unknown routing policy {default!r}; known: {', '.join(registry)}")
        self._registry = registry
        self._looks_up = {name: registry.looks_up(name) for name in registry}
        self._clock = clock
        self._default = default
        self._policies: dict[str, Policy] = {}
        self._peers = peers
        self._view = FleetView()
        self._columns: FleetColumns | None = None

    def looks_up(self, policy: str) -> bool:
        """Whether `policy` ("" for the default) asks where prompts are cached. Raises KeyError for an unknown one."""
        return self._looks_up[policy or self._default]

    def decide(
        self,
        request: RouteRequest,
        located: Located | None,
        snapshot: FleetSnapshot,
        cost_model: CostModel | None,
        rng: Random,
    ) -> Decision:
        """Choose a replica. `order` is empty when no replica is left; an unknown policy name raises KeyError.

        Policies that do not look up can do without a cost model; others raise ValueError then.
        """
        now_s = self._clock.monotonic()
        self._view.refresh(snapshot)
        columns = None if cost_model is None else self._counted(cost_model, snapshot, now_s)
        name = request.policy or self._default
        slate = self._slate(request, rng)
        case = Case(request, slate, self._view, located, columns, rng, now_s)
        if request.partners:
            case.partners = self._partners(case, name)
            case.slate = slate = self._divisible(case)
        if not slate:
            return Decision(policy=name, order=(), explain=partial(_evidence, case, snapshot, None))
        ranking = self._policy(name).rank(case)
        partner = case.partners.get(snapshot.replicas[ranking.rows[0]].pool) if case.partners else None
        if columns is not None:
            _charge(columns, ranking if partner is None else partner.ranking, now_s)
        return _decision(name, case, snapshot, ranking, partner)

    def _counted(self, cost_model: CostModel, snapshot: FleetSnapshot, now_s: float) -> FleetColumns:
        """The fleet in columns. They follow every snapshot, as reports are set against our own work at their time."""
        columns = self._columns
        if columns is None or columns.cost_model is not cost_model:
            columns = self._columns = _columns(cost_model, self._peers)
        columns.follow(snapshot, now_s)
        return columns

    def _partners(self, case: Case, policy: str) -> dict[str, Partner]:
        """The best prefill replica for each decode pool that has one left.

        It is the same for all replicas of the decode pool, so a pair's cost is the sum of the two sides'.
        """
        request = case.request
        found: dict[str, Partner] = {}
        for pool, prefill in request.partners.items():
            slate = whole = self._view.slate(prefill)
            if request.exclude:
                slate = self._view.without(slate, request.exclude)
                if not slate and pool not in request.alone:
                    slate = whole  # a pair may do better the next time; without one nothing can be done
            if slate:
                prompt = replace(request, pools=prefill, output_tokens=0, home="", spill_after_ms=0.0)
                ranking = self._policy(policy).rank(replace(case, request=prompt, slate=slate))
                found[pool] = Partner(self._view.replicas[ranking.rows[0]], ranking)
        return found

    def _divisible(self, case: Case) -> Slate:
        """The slate less replicas that can only decode and have no partner."""
        request, replicas = case.request, self._view.replicas
        stuck = request.partners.keys() - case.partners.keys() - request.alone
        if not stuck:
            return case.slate
        ids = frozenset(replicas[row].id for row in case.slate.rows if replicas[row].pool in stuck)
        return self._view.without(case.slate, ids)

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


def _columns(cost_model: CostModel, peers: PeerTable | None) -> FleetColumns:
    from policies.routing.columns import FleetColumns  # here: it brings numpy, which plain policies do without

    return FleetColumns(cost_model, peers)


def _charge(columns: FleetColumns, ranking: Ranking, now_s: float) -> None:
    work = ranking.charge
    if work is not None:
        columns.backlog.charge(
            ranking.rows[0], now_s, prefill_ms=work.prefill_ms, link_ms=work.link_ms, fs_ms=work.fs_ms
        )


def _has_canary(pools: tuple[PoolShare, ...]) -> bool:
    for pool in pools:  # noqa: SIM110 - a generator would cost more than the rest of the function
        if pool.share < 1.0:
            return True
    return False


def _dice(session: str, rng: Random) -> float:
    """A number in [0, 1): the same one for every turn of a session, so that it stays on its side of a canary."""
    return xxhash.xxh3_64_intdigest(session.encode()) / 2**64 if session else rng.random()


def _decision(name: str, case: Case, snapshot: FleetSnapshot, ranking: Ranking, partner: Partner | None) -> Decision:
    request = case.request
    order = tuple([snapshot.replicas[row] for row in ranking.rows])
    expected = ranking.expected
    work = ranking.prefill_tokens if partner is None else partner.ranking.prefill_tokens
    return Decision(
        policy=name,
        order=order,
        predicted_ttft_ms=expected.ttft_ms if expected else 0.0,
        predicted_cached=_by_tier(expected.by_tier) if expected else {},
        expected=expected,
        prefill_tokens=request.prompt_tokens if work is None else work,
        load_tiers=ranking.load_tiers,
        dp_rank=_dp_rank(request, order[0], case.located) if partner is None else None,
        prefill=None if partner is None else partner.replica,
        explain=partial(_evidence, case, snapshot, ranking),
    )


def _by_tier(tokens: tuple[int, int, int, int]) -> dict[Tier, int]:
    gpu, host, fs, remote = tokens
    return {"gpu": gpu, "host": host, "fs": fs, "remote": remote}  # a third of the time of a zip


def _dp_rank(request: RouteRequest, replica: Replica, located: Located | None) -> int | None:
    """The rank that holds the longest match, else one that the prompt's head always maps to."""
    if replica.dp_ranks <= 1:
        return None
    if located is not None and located.dp_rank is not None and located.dp_rank[replica.row] >= 0:
        return int(located.dp_rank[replica.row])
    return request.prefix_key % replica.dp_ranks if request.prefix_key else None


def _evidence(case: Case, snapshot: FleetSnapshot, ranking: Ranking | None) -> tuple[Candidate, ...]:
    """Every replica of the request's pools: cost terms of those that stood, a reason for those that did not."""
    request, partners = case.request, case.partners
    terms = dict(ranking.terms()) if ranking is not None and ranking.terms is not None else {}
    stood = set(case.slate.rows)
    for partner in partners.values():
        terms |= partner.ranking.terms() if partner.ranking.terms is not None else {}
        stood |= set(partner.ranking.rows)
    names = {pool.name for pools in (request.pools, *request.partners.values()) for pool in pools}
    out = []
    for row, replica in enumerate(snapshot.replicas):
        if row in stood:
            costs = terms.get(row, {})
            other = partners.get(replica.pool)
            out.append(Candidate(replica.id, sum(costs.values()), costs, prefill=other.replica.id if other else ""))
        elif replica.pool in request.refused:
            out.append(Candidate(replica.id, filtered=request.refused[replica.pool]))
        elif replica.pool in names:
            out.append(Candidate(replica.id, filtered=_why_not(replica, case)))
    return tuple(out)


def _why_not(replica: Replica, case: Case) -> str:
    if replica.state is not ReplicaState.READY:
        state = replica.state.value
        return f"{state}: {replica.reason}" if replica.reason else state
    if replica.id in case.request.exclude:
        return "tried before"
    pool = replica.pool
    lonely = pool in case.request.partners and pool not in case.partners
    return "no replica of its prefill pool is ready" if lonely else "outside the canary share"
