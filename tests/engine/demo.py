"""The demo in front of real engines: vLLM and SGLang on the CPU, one gateway, real text. Until Ctrl-C."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import urllib.request
from pathlib import Path
from types import FrameType

from tests.engine.servers import MODEL, both
from tests.support.gateway import Gateway, gateway
from tests.support.processes import StartError

QUESTION = "What is the capital of France?"


def main() -> int:
    """Start everything, ask each pool once, print how to go on, wait."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").strip())
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--admin-port", type=int, default=9090)
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _interrupt)
    with tempfile.TemporaryDirectory(prefix="headrace-demo-") as folder:
        print("Starting vLLM and SGLang on the CPU, about a minute ...")
        try:
            with both(Path(folder)) as (vllm, sglang):
                config = {
                    "listen": {"port": options.port, "admin_port": options.admin_port},
                    "auth": {"mode": "open"},
                    "tenants": [],
                    "pools": [
                        {"name": server.kind.name, "engine": server.kind.name, "model": MODEL, "replicas": [server.url]}
                        for server in (vllm, sglang)
                    ],
                    "models": [
                        {"name": "smol", "aliases": ["gpt-*", "claude-*"], "pools": ["vllm", "sglang"]},
                        {"name": "smol-vllm", "pools": ["vllm"]},
                        {"name": "smol-sglang", "pools": ["sglang"]},
                    ],
                }
                with gateway(config, Path(folder)) as running:
                    for model in ("smol-vllm", "smol-sglang"):
                        print(f"  {model}: {QUESTION} -> {_ask(running, model)}")
                    print(_how_to_go_on(running))
                    signal.pause()
        except StartError as error:
            print(f"FAIL demo-real: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt:
            print("stopped")
    return 0


def _ask(running: Gateway, model: str) -> str:
    body = {"model": model, "messages": [{"role": "user", "content": QUESTION}], "max_tokens": 24, "temperature": 0}
    request = urllib.request.Request(
        f"{running.url}/v1/chat/completions", json.dumps(body).encode(), {"content-type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=120) as answer:
        return str(json.load(answer)["choices"][0]["message"]["content"])


def _how_to_go_on(running: Gateway) -> str:
    return f"""
Base URL  {running.url}/v1      models: smol, smol-vllm, smol-sglang, gpt-*, claude-*
Metrics   {running.admin_url}/metrics

  curl -N {running.url}/v1/chat/completions -H 'content-type: application/json' \\
    -d '{{"model":"smol","stream":true,"messages":[{{"role":"user","content":"{QUESTION}"}}]}}'

  from openai import OpenAI
  client = OpenAI(base_url="{running.url}/v1", api_key="none")
  print(client.chat.completions.create(model="smol", messages=[{{"role": "user", "content": "Hello"}}]))

Ctrl-C ends everything."""


def _interrupt(signum: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
