"""Real prefill/decode pairs on the CPU behind a gateway: vLLM over NIXL, SGLang over Mooncake."""

from __future__ import annotations

import json
import os
import re
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from ctypes.util import find_library
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from openai import InternalServerError, OpenAI

from gateway.cli.children import free_ports
from tests.engine.servers import MODEL, SGLANG, VLLM, Kind, Server, server
from tests.support.gateway import KEY, Gateway, gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

ENGINES_DIR = Path(os.environ.get("ENGINES_DIR", Path.home() / ".cache/headrace-engines"))
CAPITALS = ("France", "Italy", "Spain")
PARIS = "The capital of France is Paris."  # what either engine says alone
LONG = "Water runs down the channel to the turbine. " * 40


@dataclass(frozen=True)
class Running:
    """A pair and the gateway in front of it."""

    gateway: Gateway
    prefill: Server
    decode: Server
    prefill_stack: ExitStack  # ends the prefill server

    def client(self) -> OpenAI:
        return OpenAI(base_url=f"{self.gateway.url}/v1", api_key=KEY, max_retries=0, timeout=300)


@contextmanager
def pair(kind: Kind, folder: Path) -> Iterator[Running]:
    """Prefill, decode and a gateway, on free ports."""
    if not (ENGINES_DIR / kind.name / ".installed").exists():
        pytest.skip(f"{kind.name} is not installed: run `make engines`")
    bootstrap, *sides = free_ports(0, 0, 0)
    options = {
        VLLM: [["--side-port", str(side)] for side in sides],
        SGLANG: [["--bootstrap-port", str(bootstrap)], []],
    }[kind]
    with ExitStack() as stack:
        first = stack.enter_context(ExitStack())
        prefill = first.enter_context(server(kind, folder, ["--pd", "prefill", *options[0]]))
        decode = stack.enter_context(server(kind, folder, ["--pd", "decode", *options[1]]))
        common = {"engine": kind.name, "model": MODEL, "probe": {"golden": False, "timeout_s": 60.0}}
        config = {
            "pools": [
                {"name": "p", "replicas": [prefill.url], **common},
                {
                    "name": "d",
                    "replicas": [decode.url],
                    "prefill": {"pool": "p", "bootstrap_port": bootstrap},
                    **common,
                },
            ],
            "models": [{"name": "smol", "pools": ["d"]}],
        }
        running = stack.enter_context(gateway(config, folder))
        while not all(pool["ready"] for pool in running.admin("pools")["pools"]):  # the gateway waits for one only
            time.sleep(0.2)
        yield Running(running, prefill, decode, first)


@pytest.fixture(scope="class")
def vllm_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    with pair(VLLM, tmp_path_factory.mktemp("vllm")) as running:
        yield running


@pytest.fixture(scope="class")
def sglang_pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    if missing := [library for library in ("ibverbs", "rdmacm", "numa") if find_library(library) is None]:
        pytest.skip(f"Mooncake needs the system libraries {', '.join(missing)}")
    with pair(SGLANG, tmp_path_factory.mktemp("sglang")) as running:
        yield running


def ask(client: OpenAI, question: str, *, stream: bool = False, limit: int = 16, model: str = "smol") -> str:
    """The greedy answer."""
    messages: Any = [{"role": "user", "content": question}]
    if stream:
        chunks = client.chat.completions.create(
            model=model, messages=messages, max_tokens=limit, temperature=0, stream=True
        )
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    answer = client.chat.completions.create(model=model, messages=messages, max_tokens=limit, temperature=0)
    return answer.choices[0].message.content or ""


def capital(country: str) -> str:
    return f"What is the capital of {country}?"


def leave_early(running: Running) -> None:
    """A client that goes away in the middle of its answer."""
    with running.client() as client:
        chunks = client.chat.completions.create(
            model="smol",
            messages=[{"role": "user", "content": "Tell me a very long story."}],
            max_tokens=400,
            stream=True,
        )
        next(iter(chunks))
        chunks.close()


def check_answers(running: Running) -> None:
    """Whole, streamed and side by side the text is the same."""
    with running.client() as client:
        assert ask(client, capital("France")) == PARIS
        assert ask(client, capital("France"), stream=True) == PARIS
        one_by_one = [ask(client, capital(country)) for country in CAPITALS]
        with ThreadPoolExecutor(3) as pool:
            at_once = list(pool.map(lambda country: ask(client, capital(country), stream=True), CAPITALS))
        assert at_once == one_by_one
        leave_early(running)
        assert ask(client, capital("France")) == PARIS


def transferred(running: Running) -> float:
    """Prompt tokens that vLLM's decode side got from elsewhere."""
    with urllib.request.urlopen(f"{running.decode.url}/metrics", timeout=30) as answer:
        text = answer.read().decode()
    found = re.findall(r"^vllm:external_prefix_cache_hits_total\{[^}]*\} (\S+)", text, re.MULTILINE)
    return sum(map(float, found))


class TestVllm:
    """The pair is gone before the next one starts: four engines are too many for a small machine."""

    def test_answers_as_one_engine_alone(self, vllm_pair: Running) -> None:
        before = transferred(vllm_pair)
        check_answers(vllm_pair)
        assert transferred(vllm_pair) > before
        with OpenAI(base_url=f"{vllm_pair.prefill.url}/v1", api_key="none", timeout=300) as alone:
            with vllm_pair.client() as client:
                question = f"{LONG}Where does the water go?"
                assert ask(client, question, limit=24) == ask(alone, question, limit=24, model=MODEL)

    def test_serves_forced_tools_and_several_choices(self, vllm_pair: Running) -> None:
        name = {"type": "string", "maxLength": 8}
        parameters = {
            "type": "object",
            "properties": {"city": name},
            "required": ["city"],
            "additionalProperties": False,
        }
        tool: Any = {"type": "function", "function": {"name": "weather", "parameters": parameters, "strict": True}}
        with vllm_pair.client() as client:
            answer = client.chat.completions.create(
                model="smol",
                messages=[{"role": "user", "content": "How is the weather in Rome?"}],
                tools=[tool],
                tool_choice="required",
                max_tokens=80,
                temperature=0,
            )
            calls: Any = answer.choices[0].message.tool_calls
            assert "city" in json.loads(calls[0].function.arguments)
            several = client.chat.completions.create(
                model="smol", messages=[{"role": "user", "content": "Hello"}], n=2, max_tokens=4
            )
            assert len(several.choices) == 2

    def test_decodes_alone_when_prefill_is_gone(self, vllm_pair: Running) -> None:
        vllm_pair.prefill_stack.close()
        with vllm_pair.client() as client:
            assert ask(client, capital("France")) == PARIS


class TestSglang:
    """A decode server that cannot do without its partner."""

    def test_answers_as_one_engine_alone(self, sglang_pair: Running) -> None:
        check_answers(sglang_pair)

    def test_says_so_when_prefill_is_gone(self, sglang_pair: Running) -> None:
        sglang_pair.prefill_stack.close()
        with sglang_pair.client() as client, pytest.raises(InternalServerError):
            ask(client, capital("France"))
