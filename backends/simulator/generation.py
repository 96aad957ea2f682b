"""One generation request: read, refuse or submit, then hand on tokens as the engine makes them."""

from __future__ import annotations

import asyncio
import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

from aiohttp import web

from backends.simulator.answers import Planner
from backends.simulator.calls import Call, Choice, Kind, Usage, usage_of
from backends.simulator.driver import Driver
from backends.simulator.faults import Fault
from backends.simulator.metrics import Counters
from backends.simulator.outlet import CutError, Outlet, send_body
from backends.simulator.reading import Reader, load_from
from backends.simulator.requests import QueueFullError, SimRequest
from backends.simulator.tokenizer import Tokenizer
from backends.simulator.wire import Flavour, Refusal, Served, encode

ChainOf = Callable[[Sequence[int], int, str], list[bytes]]


class Generator:
    """Answers generation requests of one server."""

    def __init__(self, flavour: Flavour, served: Served, driver: Driver, counters: Counters, chain_of: ChainOf) -> None:
        self.in_flight = 0
        self.idle = asyncio.Event()  # set while nothing is in flight
        self.idle.set()
        self._flavour = flavour
        self._served = served
        self._driver = driver
        self._counters = counters
        self._chain_of = chain_of
        self._tokenizer = Tokenizer()
        self._planner = Planner(self._tokenizer, served.options.seed)
        self.reader = Reader(self._tokenizer, flavour, served)
        self._serial = 0
        self._calls: dict[str, Call] = {}  # by the id that clients see

    async def answer(
        self, request: web.BaseRequest, kind: Kind, body: bytes, fault: Fault | None
    ) -> web.StreamResponse:
        """The whole exchange. Cancelled when the client goes."""
        headers = self._headers(request)
        try:
            call = self._begin(request, kind, body, fault)
        except Refusal as refusal:
            return await self._refused(request, refusal, headers)
        self.in_flight += 1
        self.idle.clear()
        try:
            if call.stream:
                return await self._stream(request, call, fault, headers)
            return await self._whole(request, call, fault, headers)
        except asyncio.CancelledError:
            self._forget_later(call)
            raise
        except CutError:
            self._forget(call)
            raise
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self.idle.set()
            self._calls.pop(call.id, None)

    def abort(self, prefix: str) -> int:
        """Give up on running calls whose id begins with `prefix`; how many there were."""
        hit = [call for call_id, call in self._calls.items() if call_id.startswith(prefix)]
        for call in hit:
            self._forget(call)
        return len(hit)

    # -- from the request into the engine ----------------------------------------------------------------------------

    def _begin(self, request: web.BaseRequest, kind: Kind, body: bytes, fault: Fault | None) -> Call:
        flavour = self._flavour
        parsed = flavour.parse(kind, body, request.headers.get("content-type", ""))
        self._serial += 1
        fresh = hashlib.blake2b(f"{self._served.options.seed}/{self._serial}".encode(), digest_size=16).hexdigest()
        call = self.reader.read(kind, parsed, request.headers, fresh)
        flavour.check(call, self._served)
        if fault is not None and fault.name == "queue_full":
            self._counters.rejected += 1
            raise flavour.queue_full(call)
        if fault is not None and fault.name == "http_500":
            raise flavour.internal_error()
        if fault is not None and fault.name == "error_frame" and not call.stream:
            raise flavour.internal_error()
        if call.id in self._calls and (refusal := flavour.duplicate(call)) is not None:
            raise refusal
        gives_up = fault.value if fault is not None and fault.name == "abort" else math.inf
        self._submit(call, int(fresh[:16], 16), gives_up)
        self._calls[call.id] = call
        return call

    def _submit(self, call: Call, mark: int, gives_up: float) -> None:
        wake = asyncio.Event()
        for prompt, ask in zip(call.prompts, call.asks, strict=True):
            for variant in range(call.n):
                index = len(call.choices)
                answer = self._planner.plan(ask, variant)
                if len(answer.tokens) > gives_up:
                    answer = replace(answer, tokens=answer.tokens[: max(int(gives_up), 1)], finish="abort")
                tokens = [*prompt, *(token.id for token in answer.tokens)]
                wanted = SimRequest(
                    id=f"{call.id}#{self._serial}.{index}",
                    prompt_tokens=max(len(prompt), 1),
                    output_tokens=len(answer.tokens),
                    blocks=self._chain_of(tokens, self._served.profile.block_tokens, call.salt),
                    priority=call.priority,
                    load_from=load_from(call.body),
                    tokens=tokens,
                    salt=call.salt,
                )
                try:
                    feed = self._driver.submit(wanted, wake)
                except QueueFullError:
                    self._counters.rejected += 1
                    self._forget(call)
                    raise self._flavour.queue_full(call) from None
                except ValueError:
                    self._forget(call)
                    raise self._flavour.internal_error() from None
                echo = self._tokenizer.decode(prompt) if call.kind == "completions" and call.body.get("echo") else ""
                call.choices.append(Choice(index, prompt, answer, feed, mark + index * 64, echo))

    # -- from the engine to the client -------------------------------------------------------------------------------

    async def _stream(
        self, request: web.BaseRequest, call: Call, fault: Fault | None, headers: dict[str, str]
    ) -> web.StreamResponse:
        flavour = self._flavour
        outlet = Outlet(request, fault, flavour.error_frame(), headers)
        if flavour.early_headers:
            await outlet.open()
        open_choices = list(call.choices)
        started = False
        while open_choices:
            frames: list[bytes] = []
            for choice in await _ready(open_choices):
                if not started:
                    frames += flavour.opening(call, self._running_usage(call))
                    started = True
                self._advance(call, choice, open_choices, frames)
            await outlet.send(frames)
        await outlet.send(flavour.closing(call, self._usage(call)))
        await outlet.close()
        return outlet.response

    def _advance(self, call: Call, choice: Choice, open_choices: list[Choice], frames: list[bytes]) -> None:
        """Frames of what one choice has new; takes it out of `open_choices` when it is over."""
        finish = choice.feed.finish
        tokens = choice.take(choice.feed.take())
        flavour, last = self._flavour, None
        if finish == "length" and tokens:
            *tokens, last = tokens
        frames += flavour.frames(call, choice, tokens, self._running_usage(call))
        if finish is None:
            return
        open_choices.remove(choice)
        frames += flavour.ending(call, choice, last, self._running_usage(call), last=not open_choices)
        self._count(choice)

    async def _whole(
        self, request: web.BaseRequest, call: Call, fault: Fault | None, headers: dict[str, str]
    ) -> web.StreamResponse:
        open_choices = list(call.choices)
        while open_choices:
            for choice in await _ready(open_choices):
                finish = choice.feed.finish
                choice.take(choice.feed.take())
                if finish is not None:
                    open_choices.remove(choice)
                    self._count(choice)
        body = encode(self._flavour.whole(call, self._usage(call)))
        return await send_body(request, 200, body, fault, headers)

    async def _refused(self, request: web.BaseRequest, refusal: Refusal, headers: dict[str, str]) -> web.StreamResponse:
        if refusal.frames:
            outlet = Outlet(request, None, b"", headers)
            await outlet.send(refusal.frames)
            await outlet.close()
            return outlet.response
        return await send_body(request, refusal.status, encode(refusal.body), None, headers)

    # -- the books ---------------------------------------------------------------------------------------------------

    def _headers(self, request: web.BaseRequest) -> dict[str, str]:
        if not self._served.options.request_id_headers:
            return {}
        return {"x-request-id": request.headers.get("x-request-id") or f"{self._serial:032x}"}

    def _usage(self, call: Call) -> Usage:
        return usage_of(call, self._served.profile.block_tokens)

    def _running_usage(self, call: Call) -> Usage | None:
        return self._usage(call) if call.continuous_usage else None

    def _count(self, choice: Choice) -> None:
        counters, feed = self._counters, choice.feed
        counters.prompt_tokens += len(choice.prompt)
        counters.generation_tokens += choice.sent
        counters.cached_gpu += feed.cached.gpu
        counters.cached_host += feed.cached.host
        counters.cached_fs += feed.cached.fs
        counters.finished_abort += choice.aborted
        if not choice.aborted:
            counters.finished_length += choice.answer.finish == "length"
            counters.finished_stop += choice.answer.finish != "length"
        now = self._driver.now()
        if feed.first_s:
            counters.first_tokens += 1
            counters.ttft_s += feed.first_s - feed.submitted_s
            counters.decode_tokens += max(choice.sent - 1, 0)
            counters.decode_s += now - feed.first_s
        counters.e2e_s += now - feed.submitted_s

    def _forget(self, call: Call) -> None:
        for choice in call.choices:
            self._driver.abort(choice.feed.request.id)

    def _forget_later(self, call: Call) -> None:
        """The client is gone. Engines notice after a while; until then the request goes on."""
        delay = self._flavour.notice_s[0 if call.stream else 1]
        asyncio.get_running_loop().call_later(delay, self._forget, call)


async def _ready(choices: Sequence[Choice]) -> list[Choice]:
    """Wait until one of the choices of a call has something new; all that may have."""
    wake = choices[0].feed.wake
    await wake.wait()
    wake.clear()
    return list(choices)
