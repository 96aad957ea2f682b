"""The simulated server: `start` inside a running loop, `run` as a process."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http import RawRequestMessage

from backends.profiles import EngineName, FsTier, HostTier, Profile, load_profile
from backends.simulator.driver import Driver
from backends.simulator.endpoints import Endpoints
from backends.simulator.engine import Engine
from backends.simulator.faults import FaultPlan
from backends.simulator.generation import ChainOf, Generator
from backends.simulator.hashes import sglang_chain, vllm_chain
from backends.simulator.kv_events import Publisher, sglang_events, vllm_events
from backends.simulator.kv_files import FileStore, SglangLayout, VllmLayout
from backends.simulator.kvcache import FsStore
from backends.simulator.metrics import Counters
from backends.simulator.options import SimOptions
from backends.simulator.sglang.wire import NimWire, SglangWire
from backends.simulator.vllm.wire import VllmWire
from backends.simulator.wire import Flavour, Served

_FLAVOURS: Mapping[EngineName, Callable[[], Flavour]] = {"vllm": VllmWire, "sglang": SglangWire, "nim": NimWire}
_CHAINS: Mapping[EngineName, ChainOf] = {"vllm": vllm_chain, "sglang": sglang_chain, "nim": sglang_chain}
_MAX_HEADER = 65_536  # bytes
# Tiers that cost nothing, for a profile without any when files are asked for.
_FREE_HOST = HostTier(0.0, 0.0, math.inf, 0.0, 1_000_000, 0.0)
_FREE_FS = FsTier(0.0, math.inf, 0.0, 1 << 40, math.inf, 0.0)


class Simulator:
    """A running server. `url` has no path; `driver.engine` is the pure engine behind it."""

    def __init__(
        self,
        options: SimOptions,
        driver: Driver,
        generator: Generator,
        endpoints: Endpoints,
        faults: FaultPlan,
        publisher: Publisher | None,
    ) -> None:
        self.options = options
        self.driver = driver
        self.generator = generator
        self.endpoints = endpoints
        self._faults = faults
        self.url = ""
        self.kv_port = publisher.port if publisher else None
        self.replay_port = publisher.replay_port if publisher else None
        self._publisher = publisher
        self._runner: web.ServerRunner | None = None
        self._replay: asyncio.Task[None] | None = None

    @property
    def published(self) -> int:
        """Batches of cache events sent so far."""
        return self._publisher.published if self._publisher is not None else 0

    async def open(self) -> None:
        """Listen, unless the fault `refuse` is certain: then the port stays closed."""
        if self._publisher is not None:
            self._replay = asyncio.create_task(self._publisher.serve_replay(), name="kv-replay")
        server = web.Server(
            self.endpoints.handle,
            request_factory=_request,
            handler_cancellation=True,
            access_log=None,
            keepalive_timeout=5.0,  # uvicorn's
            max_line_size=_MAX_HEADER,
            max_field_size=_MAX_HEADER,
        )
        self._runner = web.ServerRunner(server, shutdown_timeout=self.options.drain_s)
        await self._runner.setup()
        if self._faults.certain("refuse"):
            self.url = f"http://{self.options.host}:{self.options.port}"
            return
        await web.TCPSite(self._runner, self.options.host, self.options.port, backlog=1024).start()
        self.url = f"http://{self.options.host}:{self._runner.addresses[0][1]}"

    async def stop(self) -> None:
        """Stop at once: running requests are aborted."""
        self.driver.close()
        if self._runner is not None:
            await self._runner.cleanup()
        if self._replay is not None:
            self._replay.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._replay
        if self._publisher is not None:
            self._publisher.close()

    async def drain(self) -> None:
        """Wait until no generation is running, at most `drain_s`; readiness says no from the start."""
        self.endpoints.draining = True
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.generator.idle.wait(), self.options.drain_s)


async def start(options: SimOptions) -> Simulator:
    """Start a server in the running loop. Raises KeyError for an unknown profile, ValueError for a bad fault."""
    profile = _profile(options)
    flavour = _FLAVOURS[options.engine]()
    publisher = _publisher(options)
    engine = Engine(
        profile,
        flavour.scheduling,
        fs=_files(options, profile),
        tokens=True,
        events=publisher is not None,
        max_queued=options.max_queued,
    )
    encode_events = vllm_events if options.engine == "vllm" else sglang_events

    def publish() -> None:
        if publisher is not None and (events := list(encode_events(engine.take_events(), profile.block_tokens))):
            publisher.publish(events, time.time())

    driver = Driver(engine, scale=options.time_scale, tick_s=options.tick_s, on_step=publish)
    served = Served(options, profile, int(time.time()))
    counters = Counters()
    faults = FaultPlan(options.fault, random.Random(options.seed))
    generator = Generator(flavour, served, driver, counters, _CHAINS[options.engine])
    ports = (publisher.port, publisher.replay_port) if publisher else (None, None)
    endpoints = Endpoints(flavour, served, driver, counters, generator, faults, ports)
    simulator = Simulator(options, driver, generator, endpoints, faults, publisher)
    try:
        await simulator.open()
    except OSError:
        await simulator.stop()
        raise
    return simulator


def run(options: SimOptions) -> None:
    """Serve until SIGTERM or SIGINT. Raises what `start` raises, and OSError when the port is taken."""
    with contextlib.suppress(ImportError):
        import uvloop

        uvloop.run(_serve(options))
        return
    asyncio.run(_serve(options))


async def _serve(options: SimOptions) -> None:
    simulator = await start(options)
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    await stop.wait()
    await simulator.drain()
    await simulator.stop()


def _request(
    message: RawRequestMessage, payload: StreamReader, protocol: Any, writer: Any, task: asyncio.Task[None]
) -> web.BaseRequest:
    """A request whose body may be as large as an engine's: there is no limit."""
    loop = asyncio.get_running_loop()
    return web.BaseRequest(message, payload, protocol, writer, task, loop, client_max_size=sys.maxsize)


def _profile(options: SimOptions) -> Profile:
    profile = load_profile(options.profile, options.engine)
    if options.fs_root is not None and profile.fs is None:
        profile = replace(profile, host=profile.host or _FREE_HOST, fs=_FREE_FS)
    if not options.tiers:
        profile = profile.without_tiers()
    if options.block_tokens is not None:
        profile = replace(profile, block_tokens=options.block_tokens)
    return profile


def _files(options: SimOptions, profile: Profile) -> FsStore | None:
    if options.fs_root is None or profile.fs is None:
        return None
    layout = (
        VllmLayout(options.fs_root, options.model, profile.block_tokens)
        if options.engine == "vllm"
        else SglangLayout(options.fs_root, options.model)
    )
    return FsStore(profile.fs, profile.block_tokens, FileStore(layout))


def _publisher(options: SimOptions) -> Publisher | None:
    if options.kv_events is None:
        return None
    topic = f"kv@{options.host}@{options.model}" if options.engine == "vllm" else ""
    return Publisher(options.host, options.kv_events, topic)
