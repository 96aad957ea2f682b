"""Which pools of its model may serve an exchange: by contract, counting the prompt only where that decides."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import aiohttp
import msgspec
import structlog

from backends.contracts import ReplicaState
from backends.fleet import Fleet
from gateway.book import ContractBook
from gateway.dialects.counting import TOKENIZE, read_count, tokenize_body
from gateway.dialects.model import Request
from gateway.dialects.registry import Dialect
from gateway.errors import GatewayError
from gateway.requirements import refused, requirements
from gateway.runtime import Runtime
from policies.adaptations import Adaptation
from policies.enforcement import Outcome, Verdict, enforce
from policies.routing.request import PoolShare
from policies.traits import CHAT_PATH

log = structlog.get_logger("headrace.eligible")

_COUNT_S = 5.0
_TEMPLATE_TOKENS = 64  # what a chat template adds around the messages, at most


class Eligible(msgspec.Struct):
    """The pools an exchange may go to. `spare` ones only when no replica of the others is left."""

    pools: tuple[PoolShare, ...]
    spare: tuple[PoolShare, ...] = ()
    adaptations: Mapping[str, tuple[Adaptation, ...]] | None = None
    refused: Mapping[str, str] | None = None  # pool -> why not, for the trace
    tokens: int = 0  # of the prompt, when they were counted


class PoolFilter:
    """Applies contracts. One per process."""

    __slots__ = ("_book", "_fleet", "session")

    def __init__(self, book: ContractBook, fleet: Fleet) -> None:
        self._book = book
        self._fleet = fleet
        self.session: aiohttp.ClientSession | None = None  # for counting; without one nothing is counted

    def at_once(self, runtime: Runtime, model: str, asked: Request) -> Eligible | None:
        """The answer for plain text that fits every pool of the model, which most exchanges are; else None.

        A JSON body has more bytes than its text has tokens, with what surrounds each message counted in.
        """
        if not asked.direct:
            return None
        most = len(asked.body) + _TEMPLATE_TOKENS + (asked.max_output or 0)
        return Eligible(runtime.shares[model]) if most <= self._book.room(model) else None

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
        snapshot = self._fleet.snapshot()
        for share in shares:
            ready = [r for r in snapshot.by_pool.get(share.name, ()) if r.state is ReplicaState.READY]
            if not ready:
                continue
            try:
                sent = dialect.encode_engine_request(asked, self._book.targets[share.name])
            except GatewayError:
                continue  # this pool cannot be asked for it at all
            pool = runtime.pools[share.name]
            key = pool.config.api_key
            headers = {"content-type": "application/json"}
            if key is not None:
                headers["authorization"] = f"Bearer {key.get_secret_value()}"
            count = await self._ask(ready[0].url, tokenize_body(sent.body), headers)
            if count is not None:
                return count
        return None

    async def _ask(self, url: str, body: bytes, headers: Mapping[str, str]) -> int | None:
        if self.session is None:
            return None
        try:
            async with asyncio.timeout(_COUNT_S):
                async with self.session.post(url.rstrip("/") + TOKENIZE, data=body, headers=headers) as answer:
                    return read_count(await answer.read()) if answer.status == 200 else None
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.info("prompt not counted", error=repr(error))
            return None


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
