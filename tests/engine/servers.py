"""Real engines on the CPU as processes of the tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from gateway.cli.children import free_ports
from tests.support.processes import running, wait_for

HERE = Path(__file__).parent
MODEL = "smollm2-135m"  # the name both serve
START_LIMIT_S = 300.0  # 25-40 s on two quiet cores, minutes on busy ones
GRACE_S = 20.0


@dataclass(frozen=True)
class Kind:
    """How an engine is started and when it is ready."""

    name: str
    script: str
    ready_path: str

    @property
    def variable(self) -> str:
        """Environment variable that carries the URL of a running one."""
        return f"HEADRACE_TEST_{self.name.upper()}_URL"


VLLM = Kind("vllm", "serve-vllm.sh", "/health")
SGLANG = Kind("sglang", "serve-sglang.sh", "/ready")


@dataclass(frozen=True)
class Server:
    """A running engine: HTTP, KV events (ZeroMQ PUB) and their replay."""

    kind: Kind
    url: str
    kv_events: str
    kv_replay: str

    def variables(self) -> dict[str, str]:
        """How engine tests learn of it."""
        prefix = f"HEADRACE_TEST_{self.kind.name.upper()}"
        return {
            self.kind.variable: self.url,
            f"{prefix}_KV_EVENTS": self.kv_events,
            f"{prefix}_KV_REPLAY": self.kv_replay,
        }


@contextmanager
def server(kind: Kind, folder: Path, options: Sequence[str] = ()) -> Iterator[Server]:
    """One engine on free ports, ready. `options` are those of its serve script; its log is in `folder`."""
    port, kv_port, replay_port = free_ports(0, 0, 0)
    argv = [str(HERE / kind.script), "--port", str(port), "--kv-port", str(kv_port), "--replay-port", str(replay_port)]
    log = folder / f"{kind.name}-{port}.log"
    with running([*argv, *options], log, grace_s=GRACE_S) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(f"{url}{kind.ready_path}", process, log, START_LIMIT_S)
        yield Server(kind, url, f"tcp://127.0.0.1:{kv_port}", f"tcp://127.0.0.1:{replay_port}")


@contextmanager
def both(folder: Path) -> Iterator[tuple[Server, Server]]:
    """vLLM and SGLang, one after the other: starting them together takes longer on two cores."""
    with ExitStack() as stack:
        vllm = stack.enter_context(server(VLLM, folder))
        yield vllm, stack.enter_context(server(SGLANG, folder))


def given(kind: Kind) -> str | None:
    """URL of an engine that somebody has started for the tests."""
    return os.environ.get(kind.variable)
