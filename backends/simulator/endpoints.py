"""Every path of a simulated server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from aiohttp import web

from backends.simulator.calls import Kind
from backends.simulator.driver import Driver
from backends.simulator.faults import Fault, FaultPlan
from backends.simulator.generation import Generator
from backends.simulator.hooks import Hooks
from backends.simulator.metrics import Counters
from backends.simulator.outlet import HEADERS, CutError, cut
from backends.simulator.scoring import embeddings, rerank
from backends.simulator.script import Script, play
from backends.simulator.tokenizer import Tokenizer
from backends.simulator.wire import Facts, Flavour, Refusal, Served, encode

_GARBAGE = b"\x16\x03\x01garbage, and not HTTP\r\n\r\n"
_METHODS: Mapping[str, str] = {"HEAD": "GET"}
_FRESH = "0" * 32  # an id for requests that are never seen again
Arguments = Mapping[str, Any]  # the body, when it is an object, and the query


class Endpoints:
    """Dispatches by path. One handler for everything, so that a request costs little."""

    def __init__(
        self,
        flavour: Flavour,
        served: Served,
        driver: Driver,
        counters: Counters,
        generator: Generator,
        faults: FaultPlan,
        ports: tuple[int | None, int | None],
    ) -> None:
        self.draining = False
        self._flavour = flavour
        self._served = served
        self._driver = driver
        self._counters = counters
        self._generator = generator
        self._faults = faults
        self._ports = ports  # KV events, replay
        self._script = Script(served.options.keep_requests)
        self._hooks = Hooks(self._script, faults, driver, generator, counters)
        self._tokenizer = Tokenizer()
        self._posts = self._post_table()

    async def handle(self, request: web.BaseRequest) -> web.StreamResponse:
        """Answer one request."""
        body = await request.read() if request.body_exists else b""
        hook = self._hooks.answer(request.method, request.path, body)
        if hook is not None:
            return _json(hook[1], hook[0])
        self._script.record(request, body)
        try:
            return await self._dispatch(request, body)
        except CutError:
            return web.Response()

    async def _dispatch(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        path, key, flavour = request.path, self._served.options.api_key, self._flavour
        if key and flavour.guarded(path) and request.headers.get("authorization") != f"Bearer {key}":
            return _json({"error": "Unauthorized"}, 401)
        method = _METHODS.get(request.method, request.method)
        if path in flavour.get_paths and method == "GET":
            return await self._get(path)
        if path in flavour.generate_paths and method == "POST":
            return await self._generate(request, body)
        if path in self._posts and method == "POST":
            return self._posts[path](_arguments(body) | dict(request.query))
        if path == "/openapi.json":
            return _json(self._openapi())
        known = path in flavour.get_paths or path in flavour.generate_paths or path in self._posts
        return _wrong_method(path in flavour.get_paths) if known else _json({"detail": "Not Found"}, 404)

    async def _generate(self, request: web.BaseRequest, body: bytes) -> web.StreamResponse:
        if (step := self._script.take()) is not None:
            return await play(step, request)
        try:
            fault = self._faults.strike(request.headers.get("x-sim-fault"))
        except ValueError as error:
            return _json({"error": str(error)}, 400)
        if fault is not None:
            await _strike_early(fault, request)
        return await self._generator.answer(request, self._flavour.generate_paths[request.path], body, fault)

    # -- what the engine says of itself ------------------------------------------------------------------------------

    async def _get(self, path: str) -> web.StreamResponse:
        if path in self._flavour.health_paths:
            if self._faults.certain("hang_health"):
                await asyncio.Event().wait()
            await asyncio.sleep(self._flavour.health_paths[path] / max(self._served.options.time_scale, 1.0))
        status, body = self._flavour.info(path, self._facts())
        if body is None:
            return web.Response(status=status, headers=HEADERS)
        return _text(body) if isinstance(body, str) else _json(body, status)

    def _facts(self) -> Facts:
        engine = self._driver.engine
        return Facts(
            served=self._served,
            state=engine.state(),
            counters=self._counters,
            loaded=engine.tiers.loaded,
            read=engine.tiers.read,
            kv_port=self._ports[0],
            replay_port=self._ports[1],
            in_flight=self._generator.in_flight,
            draining=self.draining,
            now_s=time.time(),
        )

    def _openapi(self) -> Any:
        gets: dict[str, Any] = {path: {"get": {}} for path in sorted(self._flavour.get_paths)}
        posts: dict[str, Any] = {path: {"post": {}} for path in sorted({*self._flavour.generate_paths, *self._posts})}
        return {"openapi": "3.1.0", "info": {"title": "FastAPI", "version": "0.1.0"}, "paths": gets | posts}

    # -- everything else that is posted ------------------------------------------------------------------------------

    def _post_table(self) -> Mapping[str, Callable[[Arguments], web.Response]]:
        flavour, options = self._flavour, self._served.options
        table: dict[str, Callable[[Arguments], web.Response]] = {}
        table |= dict.fromkeys(flavour.tokenize_paths, self._tokenize)
        table |= dict.fromkeys(flavour.detokenize_paths, self._detokenize)
        table |= dict.fromkeys(flavour.flush_paths, self._flush)
        if flavour.abort_path:
            table[flavour.abort_path] = self._abort
        if options.embeddings:
            table["/v1/embeddings"] = lambda asked: _json(embeddings(asked, self._tokenizer, options.model))
            table["/v1/rerank"] = lambda asked: _json(rerank(asked, self._tokenizer, options.model))
        return table

    def _tokenize(self, asked: Arguments) -> web.Response:
        kind: Kind = "chat" if "messages" in asked else "completions"
        try:
            self._flavour.parse(kind, encode(asked), "application/json")
            self._flavour.check_model(asked, self._served)
        except Refusal as refusal:
            return _json(refusal.body, refusal.status)
        tokens = self._generator.reader.read(kind, asked, {}, _FRESH).prompts[0]
        strings = [text for _, text in self._tokenizer.shown(tokens)] if asked.get("return_token_strs") else None
        return _json(self._flavour.tokenized(tokens, strings, self._served))

    def _detokenize(self, asked: Arguments) -> web.Response:
        tokens = [token for token in asked.get("tokens") or () if isinstance(token, int)]
        return _json(self._flavour.detokenized(self._tokenizer.decode(tokens)))

    def _flush(self, asked: Arguments) -> web.Response:
        status, answer, everything = self._flavour.flush(asked, busy=self._generator.in_flight > 0)
        if status == 200:
            self._driver.engine.reset_cache(lower_tiers=everything)
        return _text(answer, status) if isinstance(answer, str) else _json(answer, status)

    def _abort(self, asked: Arguments) -> web.Response:
        if asked.get("abort_all"):
            self._generator.abort("")
        elif asked.get("rid"):
            self._generator.abort(str(asked["rid"]))
        return web.Response(headers=HEADERS)


async def _strike_early(fault: Fault, request: web.BaseRequest) -> None:
    """Faults before the engine sees the request. Raises CutError when it ends here."""
    if fault.name == "slow_first_byte":
        await asyncio.sleep(fault.value)
    elif fault.name == "hang":
        await asyncio.Event().wait()
    elif fault.name in ("refuse", "garbage"):
        if fault.name == "garbage" and request.transport is not None:
            request.transport.write(_GARBAGE)
        cut(request, gently=fault.name == "garbage")
        raise CutError


def _json(body: Any, status: int = 200) -> web.Response:
    return web.Response(status=status, body=encode(body), content_type="application/json", headers=HEADERS)


def _text(body: str, status: int = 200) -> web.Response:
    return web.Response(status=status, text=body, headers=HEADERS)


def _wrong_method(reads: bool) -> web.Response:
    response = _json({"detail": "Method Not Allowed"}, 405)
    response.headers["allow"] = "GET" if reads else "POST"
    return response


def _arguments(body: bytes) -> dict[str, Any]:
    try:
        parsed = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}
    return parsed if isinstance(parsed, dict) else {}
