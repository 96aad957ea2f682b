"""A gateway as its users start it: `headrace serve CONFIG` in a process of its own."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gateway.cli.children import free_ports
from tests.support.processes import running, wait_for

COMMAND = str(Path(sys.executable).with_name("headrace"))
KEY = "hr-test-0123456789abcdef"
ADMIN_TOKEN = "admin-test-0123456789abcdef"
TENANT = {"name": "test", "keys": [{"id": "test", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}
START_LIMIT_S = 120.0


@dataclass(frozen=True)
class Gateway:
    """A running gateway. Requests need `headers`."""

    url: str
    admin_url: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def headers(self) -> dict[str, str]:
        """What a client of the test tenant sends."""
        return {"authorization": f"Bearer {KEY}"}

    def admin(self, path: str) -> Any:
        """GET /admin/v1/PATH as parsed JSON."""
        request = urllib.request.Request(
            f"{self.admin_url}/admin/v1/{path}", headers={"authorization": f"Bearer {ADMIN_TOKEN}"}
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def metrics(self) -> str:
        """The text of /metrics."""
        with urllib.request.urlopen(f"{self.admin_url}/metrics", timeout=10) as answer:
            return str(answer.read().decode())


@contextmanager
def gateway(
    config: Mapping[str, Any], folder: Path, *, name: str = "gateway", grace_s: float = 20.0
) -> Iterator[Gateway]:
    """Serve `config`, completed by free ports, one tenant and an admin token, and wait until it is ready."""
    port, admin_port = free_ports(0, 0)
    listen = {"host": "127.0.0.1", "port": port, "admin_port": admin_port, **config.get("listen", {})}
    complete = {"tenants": [TENANT], "admin": {"token": "${HEADRACE_ADMIN_TOKEN}"}, **config, "listen": listen}
    path, log = folder / f"{name}.yaml", folder / f"{name}.log"
    path.write_text(json.dumps(complete, indent=1))  # JSON is YAML
    argv = [COMMAND, "serve", str(path)]
    with running(argv, log, env={"HEADRACE_ADMIN_TOKEN": ADMIN_TOKEN}, grace_s=grace_s) as process:
        admin_url = f"http://127.0.0.1:{admin_port}"
        wait_for(f"{admin_url}/readyz", process, log, START_LIMIT_S)
        yield Gateway(f"http://127.0.0.1:{port}", admin_url, process, log)
