"""The gateways that are compared, as data: how each is started in front of the two mock engines."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
CONF = HERE / "conf"
RESULTS = HERE / "results"
COMPILED = HERE.parents[1] / "build" / "compiled"  # from `make compiled`
PEERS = Path(os.environ.get("PEERS_DIR") or Path.home() / ".cache" / "headrace-peers")

PORT, ADMIN_PORT, SINK_PORT = 9000, 9001, 9002
ENGINE_PORTS = (9101, 9102)
ENGINES = tuple(f"http://127.0.0.1:{port}" for port in ENGINE_PORTS)
KEY = "sk-1234"  # what the load generator sends
OURS = "headrace"  # as it is deployed: compiled
PLAIN = "headrace-plain"  # the same from its sources


@dataclass(frozen=True)
class Candidate:
    """One gateway. No `argv` means nothing stands between load and engine."""

    name: str
    argv: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    port: int = PORT
    start_limit_s: float = 40.0
    warm_s: float = 0.7
    reps: int = 99  # the slowest one is not worth three rounds
    workloads: frozenset[str] | None = None  # None: all

    @property
    def installed(self) -> bool:
        """Whether its program is there."""
        return not self.argv or shutil.which(self.argv[0]) is not None


def candidates() -> dict[str, Candidate]:
    """All candidates by name, in the order they are measured."""
    envoy = next((PEERS / "envoy").glob("lib/python3*/site-packages/envoy/_bin/envoy"), PEERS / "envoy" / "missing")
    rust = ("--host", "127.0.0.1", "--port", str(PORT), "--worker-urls", *ENGINES, "--policy", "round_robin")
    serve = (str(Path(sys.executable).with_name("headrace")), "serve", str(RESULTS / "headrace.yaml"))
    quiet = ("--log-level", "error", "--prometheus-port", "9029")
    listed = (
        Candidate("direct", port=ENGINE_PORTS[0]),
        Candidate("nginx", ("nginx", "-p", str(_nginx_folder()), "-c", str(CONF / "nginx.conf"))),
        Candidate("envoy", (str(envoy), "-c", str(CONF / "envoy.yaml"), "--concurrency", "1", "--log-level", "error",
                            "--disable-hot-restart")),
        Candidate("vllm-router", (str(PEERS / "vllmr/bin/vllm-router"), *rust, *quiet)),
        Candidate("sglang-router", (str(PEERS / "sglr/bin/sglang-router"), "launch", *rust, *quiet)),
        Candidate("litellm", (str(PEERS / "litellm/bin/litellm"), "--config", str(CONF / "litellm.yaml"), "--host",
                              "127.0.0.1", "--port", str(PORT), "--num_workers", "1", "--telemetry", "False"),
                  env={"LITELLM_LOCAL_MODEL_COST_MAP": "True", "LITELLM_LOG": "ERROR", "LITELLM_MODE": "PRODUCTION",
                       "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true", "HF_HUB_OFFLINE": "1"},
                  start_limit_s=120.0, warm_s=2.0, reps=1, workloads=frozenset({"L", "W1", "W2"})),
        Candidate(PLAIN, serve, reps=1, workloads=frozenset({"W1", "W2", "W6"})),
        Candidate(OURS, serve, env={"PYTHONPATH": str(COMPILED)}),
    )  # fmt: skip
    return {candidate.name: candidate for candidate in listed}


def write_our_config() -> None:
    """All on that a deployment has on: keys, probes, retries, leases, metrics, access log, 1 % of traces."""
    RESULTS.mkdir(exist_ok=True)
    config = {
        "listen": {"host": "127.0.0.1", "port": PORT, "admin_port": ADMIN_PORT},
        "auth": {"mode": "keys"},
        "tenants": [{"name": "bench", "keys": [{"id": "bench", "sha256": hashlib.sha256(KEY.encode()).hexdigest()}]}],
        "pools": [{"name": "mock", "engine": "vllm", "model": "mock-model", "replicas": list(ENGINES)}],
        "models": [{"name": "mock-model", "pools": ["mock"], "routing": "p2c"}],
        "telemetry": {"otlp_endpoint": f"http://127.0.0.1:{SINK_PORT}", "sample_ratio": 0.01, "access_log": True},
    }
    (RESULTS / "headrace.yaml").write_text(json.dumps(config, indent=1))  # JSON is YAML


def _nginx_folder() -> Path:
    """A prefix that nginx may write its temporary files to."""
    folder = RESULTS / "nginx"
    (folder / "temp").mkdir(parents=True, exist_ok=True)
    return folder
