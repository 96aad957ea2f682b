"""`headrace serve`: sockets, signals, reload and drain around an `App`."""

from __future__ import annotations

import asyncio
import ctypes
import gc
import random
import signal
import ssl
import sys
from functools import partial
from pathlib import Path

import structlog
import uvloop
from aiohttp import web

from gateway.app import App
from gateway.clock import SystemClock
from gateway.config.known import installed
from gateway.config.loader import Loaded, Overrides, load
from gateway.config.model import Config, Tls
from gateway.config.reload import Reloader
from gateway.telemetry.lines import LineWriter, write_to
from gateway.telemetry.operations import set_up_logging

log = structlog.get_logger("headrace.server")

_TLS_LOOK_S = 5.0
_STDOUT, _STDERR = 1, 2
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT_BYTES = 8 * 1024 * 1024
# How long a thread that encodes spans or log lines may keep the interpreter once the event loop wants it: by default
# 5 ms, which all streams would feel.
_SWITCH_S = 0.0005


def serve(path: Path, overrides: Overrides) -> None:
    """Run the gateway until SIGTERM or SIGINT. Raises ConfigError when the configuration cannot be used."""
    sys.setswitchinterval(_SWITCH_S)
    _keep_memory()
    read = partial(load, path, installed(), overrides=overrides)
    loaded = read()
    access, operations = LineWriter(write_to(_STDOUT)), LineWriter(write_to(_STDERR))
    for lines in (access, operations):
        lines.start()
    set_up_logging(operations)
    try:
        uvloop.run(_run(loaded, read, access))
    finally:
        for lines in (access, operations):
            lines.close()


async def _run(loaded: Loaded, read: partial[Loaded], access: LineWriter) -> None:
    app = App(loaded.config, clock=SystemClock(), rng=random.Random(), lines=access)
    reloader = Reloader(loaded, read, app.apply)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    for warning in loaded.warnings:
        log.warning("config", problem=str(warning))
    async with app.running():
        listeners = await _listen(app, loaded.config)
        app.supervisor.spawn(reloader.run(), "config reload")
        _settle_memory()
        log.info("serving", url=_url(loaded.config), admin=_admin_url(loaded.config))
        await stop.wait()
        await _drain(app, listeners)


async def _listen(app: App, config: Config) -> tuple[web.ServerRunner, web.AppRunner]:
    """Open both listeners."""
    listen = config.listen
    data = web.ServerRunner(app.edge, shutdown_timeout=1.0)
    await data.setup()
    context = _tls(app, listen.tls) if listen.tls else None
    await web.TCPSite(data, listen.host, listen.port, ssl_context=context, reuse_port=None, backlog=4096).start()
    admin = web.AppRunner(app.admin(), access_log=None, shutdown_timeout=1.0)
    await admin.setup()
    await web.TCPSite(admin, listen.admin_host, listen.admin_port).start()
    return data, admin


def _keep_memory() -> None:
    """Let malloc keep what is freed: a body's memory given back is faulted in anew for the next, page by page.

    That was a tenth of the cost of a body of 100 KB. Only glibc has the switch.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
        mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)


def _settle_memory() -> None:
    """Leave what start-up made out of garbage collections, and let them wait for real garbage.

    What garbage there is by now (0.3 MB) stays with it: looking for that would be a twentieth of the start. An exchange
    in flight holds some hundred objects, so the default threshold would collect on almost every one.
    """
    gc.enable()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


async def _drain(app: App, listeners: tuple[web.ServerRunner, web.AppRunner]) -> None:
    """Let balancers notice, then take no more, then wait for what is in flight."""
    listen = app.config.listen
    app.drain()
    log.info("draining", in_flight=len(app.telemetry.live), listener_open_s=listen.drain_s)
    await asyncio.sleep(listen.drain_s)
    data, admin = listeners
    for site in tuple(data.sites):
        await site.stop()
    loop = asyncio.get_running_loop()
    until = loop.time() + listen.shutdown_deadline_s
    # A look every 20 ms is soon enough, and costs exchanges nothing.
    while app.telemetry.live and loop.time() < until:  # noqa: ASYNC110
        await asyncio.sleep(0.02)
    if app.telemetry.live:
        log.warning("deadline reached", cut=len(app.telemetry.live))
    await data.cleanup()
    await admin.cleanup()
    log.info("stopped")


def _tls(app: App, tls: Tls) -> ssl.SSLContext:
    """A server context whose certificate is read again when its files change."""
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(tls.cert_file, tls.key_file)
    context.set_alpn_protocols(["http/1.1"])
    app.supervisor.spawn(_renew(context, tls), "tls certificate")
    return context


async def _renew(context: ssl.SSLContext, tls: Tls) -> None:
    seen = _stamps(tls)
    while True:
        await asyncio.sleep(_TLS_LOOK_S)
        now = _stamps(tls)
        if now == seen:
            continue
        try:
            context.load_cert_chain(tls.cert_file, tls.key_file)
        except (OSError, ssl.SSLError) as error:
            log.error("the new certificate cannot be used; the old one stays", error=str(error))
        else:
            log.info("certificate renewed")
        seen = now


def _stamps(tls: Tls) -> tuple[int, ...]:
    try:
        return tuple(Path(file).stat().st_mtime_ns for file in (tls.cert_file, tls.key_file))
    except OSError:
        return ()


def _url(config: Config) -> str:
    scheme = "https" if config.listen.tls else "http"
    return f"{scheme}://{_host(config.listen.host)}:{config.listen.port}"


def _admin_url(config: Config) -> str:
    return f"http://{_host(config.listen.admin_host)}:{config.listen.admin_port}"


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host
