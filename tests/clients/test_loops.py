"""Three turns with tools over SSE: an agent framework, the gateway, and an engine that plays a script."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.children import free_ports
from tests.clients.loops import LOOPS, QUESTION, TOOLS
from tests.support.gateway import COMMAND, KEY, Gateway, gateway
from tests.support.processes import environment, running, wait_for

pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]

HERE = Path(__file__).parent
PYTHON = Path(os.environ.get("CLIENTS_DIR") or Path.home() / ".cache/headrace-clients") / "bin/python"
ENGINES = {"vllm": "reasoning", "sglang": "reasoning_content"}  # and how each spells reasoning
PROGRAM_LIMIT_S = 200
ANSWER = "Paris has 11 °C, Rome 17 °C and 2.7 million people."
CALLS = [
    ["temperature", {"city": "Paris"}],
    ["temperature", {"city": "Rome"}],
    ["inhabitants", {"city": "Rome", "unit": "thousand"}],
]


def frames(engine: str, *deltas: dict[str, Any], finish: str, prompt: int) -> dict[str, Any]:
    """A step of the simulator's script: one streamed Chat answer in the engine's spelling."""

    def chunk(choices: list[Any], **more: Any) -> str:
        head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "glm"}
        return json.dumps({**head, "choices": choices, **more})

    said = [chunk([{"index": 0, "delta": delta, "finish_reason": None}]) for delta in deltas]
    role = chunk([{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}])
    last = chunk([{"index": 0, "delta": {}, "finish_reason": finish}])
    usage = {"prompt_tokens": prompt, "completion_tokens": 20, "total_tokens": prompt + 20}
    return {"sse": [role, *said, last, chunk([], usage=usage), "[DONE]"], "gap_s": 0.002}


def call(index: int, given: list[Any]) -> list[dict[str, Any]]:
    """Deltas of one tool call, its arguments in pieces of three characters."""
    name, arguments = given[0], json.dumps(given[1])
    opening = {"index": index, "id": f"call_{name}_{index}", "type": "function", "function": {"name": name}}
    pieces = [arguments[at : at + 3] for at in range(0, len(arguments), 3)]
    more = [{"index": index, "function": {"arguments": piece}} for piece in pieces]
    return [{"tool_calls": [delta]} for delta in (opening, *more)]


def script(engine: str) -> list[dict[str, Any]]:
    """Two calls at once, then a third, then the answer; each after some thought."""
    think = ENGINES[engine]
    return [
        frames(
            engine,
            {think: "Two "},
            {think: "cities."},
            *call(0, CALLS[0]),
            *call(1, CALLS[1]),
            finish="tool_calls",
            prompt=100,
        ),
        frames(
            engine,
            {think: "Now "},
            {think: "people."},
            {"content": "Next."},
            *call(0, CALLS[2]),
            finish="tool_calls",
            prompt=200,
        ),
        frames(engine, {think: "Done."}, {"content": ANSWER[:9]}, {"content": ANSWER[9:]}, finish="stop", prompt=300),
    ]


def at(url: str, body: Any = None) -> Any:
    """GET, or POST `body`, as parsed JSON."""
    data = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(urllib.request.Request(url, data=data), timeout=10) as answer:
        return json.load(answer)


@pytest.fixture(scope="module")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """URL of a simulator of each kind."""
    folder = tmp_path_factory.mktemp("engines")
    with ExitStack() as stack:
        urls = {}
        for engine, port in zip(ENGINES, free_ports(*[0] * len(ENGINES)), strict=True):
            argv = [COMMAND, "sim", "--engine", engine, "--port", str(port), "--model", "glm"]
            log = folder / f"{engine}.log"
            process = stack.enter_context(running(argv, log))
            urls[engine] = f"http://127.0.0.1:{port}"
            wait_for(f"{urls[engine]}/health", process, log, 60)
        yield urls


@pytest.fixture(scope="module")
def serving(engines: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway with a model for each; without probes that generate, which would take steps of a script."""
    pools = [
        {"name": engine, "engine": engine, "model": "glm", "replicas": [url], "probe": {"golden": False}}
        for engine, url in engines.items()
    ]
    models = [{"name": f"glm-{engine}", "pools": [engine]} for engine in engines]
    with gateway({"pools": pools, "models": models}, tmp_path_factory.mktemp("gateway")) as running_gateway:
        yield running_gateway


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("loop", LOOPS)
def test_three_turns(loop: str, engine: str, engines: dict[str, str], serving: Gateway) -> None:
    if not PYTHON.exists():
        pytest.skip(f"no {PYTHON}: run `make test-clients`")
    at(f"{engines[engine]}/sim/reset", {})
    at(f"{engines[engine]}/sim/script", script(engine))
    argv = [str(PYTHON), str(HERE / "loops.py"), loop, serving.url, KEY, f"glm-{engine}"]
    done = subprocess.run(argv, env=environment(), capture_output=True, text=True, timeout=PROGRAM_LIMIT_S, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "text": ANSWER,
        "calls": CALLS,
        "thoughts": "Two cities.Now people.Done.",
    }
    asked = [r["body"] for r in at(f"{engines[engine]}/sim/requests") if r["path"] == "/v1/chat/completions"]
    assert [body["stream"] for body in asked] == [True] * 3
    assert_conversation(asked[-1]["messages"], ENGINES[engine])


def assert_conversation(messages: list[dict[str, Any]], think: str) -> None:
    """What the engine is told in the third turn: every thought, call and result, in order and nothing else."""
    assert [message["role"] for message in messages] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "tool",
    ]  # fmt: skip
    first, second = messages[2], messages[5]
    assert text_of(messages[1]["content"]) == QUESTION
    assert [turn[think] for turn in (first, second)] == ["Two cities.", "Now people."]
    assert [text_of(turn.get("content")) for turn in (first, second)] == ["", "Next."]
    made = [call for turn in (first, second) for call in turn["tool_calls"]]
    assert [[call["function"]["name"], json.loads(call["function"]["arguments"])] for call in made] == CALLS
    assert [call["id"] for call in made] == ["call_temperature_0", "call_temperature_1", "call_inhabitants_0"]
    results = [message for message in messages if message["role"] == "tool"]
    assert [result["tool_call_id"] for result in results] == [call["id"] for call in made]
    assert [text_of(result["content"]) for result in results] == [TOOLS[name](**given) for name, given in CALLS]


def text_of(content: Any) -> str:
    """The text of a message, given as a string or in parts."""
    return content or "" if isinstance(content, str | None) else "".join(part["text"] for part in content)
