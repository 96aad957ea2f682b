"""Which pools of its model may serve an exchange: by contract, counting the prompt only where that decides."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp
import msgspec
import structlog

from backends.contracts import Clock, ReplicaState
from backends.fleet import Fleet
from gateway.book import ContractBook
from gateway.dialects.counting import TOKENIZE, read_count, tokenize_body
from gateway.dialects.model import Request
from gateway.dialects.registry import Dialect
from gateway.errors import GatewayError
from gateway.requirements import refused, requirements
from gateway.runtime import PoolRuntime, Runtime
from policies.adaptations import Adaptation
from policies.enforcement import Outcome, Verdict, enforce
from policies.routing.request import PoolShare
from policies.traits import CHAT_PATH

log = structlog.get_logger("headrace.eligible")

_COUNT_S = 5.0
_UNABLE = frozenset({200, 404, 405, 501})  # answers without a count that will be the same for every prompt
_UNABLE_S = 60.0  # before such a pool is asked again: its engine may be another by then


class Eligible(msgspec.Struct):
    """The pools an exchange may go to. `spare` ones only when no replica of the others is left."""

    pools: tuple[PoolShare, ...]
    spare: tuple[PoolShare, ...] = ()
    adaptations: Mapping[str, tuple[Adaptation, ...]] | None = None
    refused: Mapping[str, str] | None = None  # pool -> why not, for the trace
    tokens: int = 0  # of the prompt, when they were counted


class PoolFilter:
    """Applies contracts. One per process."""

    __slots__ = ("_book", "_clock", "_fleet", "_unable_until", "session")

    def __init__(self, book: ContractBook, fleet: Fleet, clock: Clock) -> None:
        self._book = book
        self._fleet = fleet
        self._clock = clock
        self._unable_until: dict[str, float] = {}  # pools whose engine does not count, monotonic seconds
        self.session: aiohttp.ClientSession | None = None  # for counting; without one nothing is counted

    async def decide(self, runtime: Runtime, model: str, asked: Request, dialect: Dialect) -> Eligible:
        """Filter by contract. Raises GatewayError naming the field and every pool's reason."""
        shares = runtime.shares[model]
        pools = self._book.of([share.name for share in shares])
        traits = requirements(asked)
        verdict = enforce(traits, pools)
        tokens = 0
        if verdict.count or _by_estimate(verdict):
            tokens = await self._count(runtime, shares, asked, dialect) or 0
            verdict = enforce(traits.counted(tokens), pools) if tokens else verdict
        if verdict.outcome is Outcome.REFUSE:
            raise refused(verdict, asked.model)
        return _eligible(verdict, shares, tokens)

    async def _count(
        self, runtime: Runtime, shares: Sequence[PoolShare], asked: Request, dialect: Dialect
    ) -> int | None:
        """Tokens of the prompt by the first tokenizer that answers; None when none does.

        A prompt with media is not counted: tokenizers leave out what media become, and would fetch them unguarded.
        """
        if self.session is None or asked.engine_path != CHAT_PATH or asked.traits.modalities:
            return None
        for share in shares:
            if self._unable_until.get(share.name, 0.0) <= self._clock.monotonic():
                count = await self._count_by(runtime.pools[share.name], asked, dialect)
                if count is not None:
                    return count
        return None

    async def _count_by(self, pool: PoolRuntime, asked: Request, dialect: Dialect) -> int | None:
        """Tokens of the prompt by one pool's tokenizer. A pool that cannot count is not asked again for a while."""
        name, key = pool.config.name, pool.config.api_key
        ready = [r for r in self._fleet.snapshot().by_pool.get(name, ()) if r.state is ReplicaState.READY]
        if not ready:
            return None
        try:
            sent = dialect.encode_engine_request(asked, self._book.targets[name])
        except GatewayError:
            return None  # this pool cannot be asked for it at all
        headers = {"content-type": "application/json"}
        if key is not None:
            headers["authorization"] = f"Bearer {key.get_secret_value()}"
        status, answer = await self._ask(ready[0].url, tokenize_body(sent.body), headers)
        count = read_count(answer) if status == 200 else None
        if count is None and status in _UNABLE:
            self._unable_until[name] = self._clock.monotonic() + _UNABLE_S
            log.info("pool does not count prompts", pool=name, status=status)
        return count

    async def _ask(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, bytes]:
        """Status and body of the tokenizer's answer; (0, b"") without one."""
        if self.session is None:
            return 0, b""
        try:
            async with asyncio.timeout(_COUNT_S):
                async with self.session.post(url.rstrip("/") + TOKENIZE, data=body, headers=headers) as answer:
                    return answer.status, await answer.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("prompt not counted", error=repr(error))
            return 0, b""


def _by_estimate(verdict: Verdict) -> bool:
    """Whether a prompt is refused as too long: clients shorten it by the numbers they are told."""
    closest = verdict.reason()
    return closest is not None and closest.code == "context_length_exceeded"


def _eligible(verdict: Verdict, shares: Sequence[PoolShare], tokens: int) -> Eligible:
    eligible, spare = verdict.eligible, verdict.spare
    return Eligible(
        pools=tuple([share for share in shares if share.name in eligible]),
        spare=tuple([share for share in shares if share.name in spare]) if spare else (),
        adaptations=verdict.adaptations,
        refused={refusal.pool: refusal.reason for refusal in verdict.refusals} if verdict.refusals else None,
        tokens=tokens,
    )
