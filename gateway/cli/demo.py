"""`headrace demo`: two pools and the gateway, sample traffic, and what to copy and paste."""

from __future__ import annotations

import os
import secrets
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from gateway.cli.output import UserError

if TYPE_CHECKING:
    from gateway.cli.children import Children

_REAL_MODEL = "smollm2-135m"
_READY_LIMIT_S = 30.0
_TEXT = """
Base URL      {base}/v1
Models        {model} (also as gpt-* and claude-*) over both pools; {own} for each alone
Metrics       {admin}/metrics
Admin API     {admin}/admin/v1/pools    (also replicas, contracts, kv, config, exchanges)
Live view     HEADRACE_ADMIN_TOKEN={token} headrace top --admin {admin}
Logs          {folder}

curl {base}/v1/chat/completions -H 'content-type: application/json' \\
  -d '{{"model": "{model}", "messages": [{{"role": "user", "content": "Hello"}}], "max_tokens": 40}}'

from openai import OpenAI
client = OpenAI(base_url="{base}/v1", api_key="any")
for chunk in client.chat.completions.create(
    model="{model}", messages=[{{"role": "user", "content": "Hello"}}], max_tokens=40, stream=True
):
    print(chunk.choices[0].delta.content or "" if chunk.choices else "", end="", flush=True)

Ctrl-C ends the demo and everything it started."""


@dataclass(frozen=True, slots=True)
class Engine:
    """A pool of one replica, and how that is started."""

    pool: str
    engine: str
    hardware: str
    model: str
    port: int
    argv: Sequence[str]
    ready_path: str
    start_limit_s: float

    @property
    def url(self) -> str:
        """Its base URL."""
        return f"http://127.0.0.1:{self.port}"


def demo(
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help="Port of the gateway.", show_default="8080, or a free one")
    ] = None,
    real: Annotated[
        bool, typer.Option("--real", help="Real vLLM and SGLang on the CPU: a source checkout after `make engines`.")
    ] = False,
) -> None:
    """Start two pools and the gateway, send sample traffic, and stay up until Ctrl-C."""
    from gateway.cli.children import Children, stop_on_signals

    stop_on_signals()
    engines = _real() if real else _simulated()
    try:
        with tempfile.TemporaryDirectory(prefix="headrace-demo-") as name, Children(Path(name)) as children:
            typer.echo(_start(children, engines, Path(name), port))
            while True:
                children.check()
                time.sleep(0.5)
    except KeyboardInterrupt:
        typer.echo("\ndemo ended")


def _start(children: Children, engines: Sequence[Engine], folder: Path, port: int | None) -> str:
    """Engines, gateway and sample traffic, one after the other; what to tell the user then."""
    from gateway.cli.children import free_ports
    from gateway.cli.sample import send_samples

    data_port, admin_port = free_ports(port or 8080, 9090)
    if port not in (None, data_port):
        raise UserError(f"port {port} is taken: choose another with --port")
    for engine in engines:
        typer.echo(f"starting pool {engine.pool}: {engine.engine}, {engine.hardware}, on {engine.url}")
        children.start(engine.pool, engine.argv, os.environ)
    for engine in engines:
        children.wait_ready(engine.pool, f"{engine.url}{engine.ready_path}", engine.start_limit_s)
    token = secrets.token_urlsafe(16)
    config = folder / "headrace.yaml"
    config.write_text(configuration(engines, data_port, admin_port))
    typer.echo(f"starting the gateway on http://127.0.0.1:{data_port}")
    children.start("gateway", _headrace("serve", str(config)), {**os.environ, "HEADRACE_ADMIN_TOKEN": token})
    admin = f"http://127.0.0.1:{admin_port}"
    children.wait_ready("gateway", f"{admin}/readyz", _READY_LIMIT_S)
    _wait_for_pools(children, admin, token)
    base = f"http://127.0.0.1:{data_port}"
    send_samples(base, names(engines))
    shared, *own = names(engines)
    return _TEXT.format(base=base, admin=admin, model=shared, own=" ".join(own), token=token, folder=folder)


def _wait_for_pools(children: Children, admin: str, token: str) -> None:
    """Wait until the gateway has probed every pool: it is ready itself with the first of them."""
    from gateway.cli.client import AdminClient

    client = AdminClient(admin, {"HEADRACE_ADMIN_TOKEN": token})
    deadline = time.monotonic() + _READY_LIMIT_S
    while waiting := [pool["name"] for pool in client.rows("pools") if not pool["ready"]]:
        children.check()
        if time.monotonic() > deadline:
            raise UserError(f"the gateway does not find ready: {', '.join(waiting)}")
        time.sleep(0.05)


def configuration(engines: Sequence[Engine], port: int, admin_port: int) -> str:
    """The gateway's configuration as YAML, open on loopback."""
    import yaml

    shared, *own = names(engines)
    pools = [
        {
            "name": engine.pool,
            "engine": engine.engine,
            "model": engine.model,
            "hardware": engine.hardware,
            "replicas": [engine.url],
        }
        for engine in engines
    ]
    tree = {
        "listen": {"host": "127.0.0.1", "port": port, "admin_port": admin_port, "drain_s": 0},
        "auth": {"mode": "open"},
        "pools": pools,
        "models": [
            {"name": shared, "aliases": ["gpt-*", "claude-*"], "pools": [engine.pool for engine in engines]},
            *({"name": name, "pools": [engine.pool]} for name, engine in zip(own, engines, strict=True)),
        ],
    }
    return yaml.safe_dump(tree, sort_keys=False)


def names(engines: Sequence[Engine]) -> list[str]:
    """Models of the demo: one over all pools, then one for each pool alone."""
    return [engines[0].model, *(f"{engine.model}-{engine.pool}" for engine in engines)]


def _headrace(*args: str) -> list[str]:
    return [sys.executable, "-m", "gateway.cli", *args]


def _simulated() -> tuple[Engine, ...]:
    from gateway.cli.children import free_ports

    kinds = (("h100", "vllm", "h100-fp8", "/health"), ("b300", "sglang", "b300-nvfp4", "/ready"))
    engines = []
    for (pool, kind, profile, ready_path), port in zip(kinds, free_ports(0, 0), strict=True):
        argv = _headrace("sim", "--engine", kind, "--port", str(port), "--model", "demo", "--profile", profile)
        engines.append(Engine(pool, kind, profile, "demo", port, argv, ready_path, 30.0))
    return tuple(engines)


def _real() -> tuple[Engine, ...]:
    from gateway.cli.children import free_ports

    scripts = Path(__file__).parents[2] / "tests" / "engine"
    kinds = (("vllm", "serve-vllm.sh", "/health"), ("sglang", "serve-sglang.sh", "/ready"))
    engines = []
    for kind, script, ready_path in kinds:
        if not (scripts / script).is_file():
            raise UserError(f"--real works from a source checkout: there is no {scripts / script}")
        ports = free_ports(0, 0, 0)
        options = zip(("--port", "--kv-port", "--replay-port"), map(str, ports), strict=True)
        argv = [str(scripts / script), *(word for pair in options for word in pair)]
        engines.append(Engine(f"{kind}-cpu", kind, "cpu", _REAL_MODEL, ports[0], argv, ready_path, 600.0))
    return tuple(engines)
