"""Cost of contracts per exchange. Prints two lines: PASS or FAIL of the filter alone, then of all the gateway does."""

from __future__ import annotations

import json
import random
import sys
import timeit
from collections.abc import Callable, Mapping
from typing import Any

from backends.capabilities import Capabilities
from backends.engines import builtin
from backends.fleet import Fleet
from gateway.book import ContractBook
from gateway.clock import SystemClock
from gateway.config.model import Config
from gateway.dialects.chat import Chat
from gateway.dialects.direct import read_direct
from gateway.dialects.model import Request
from gateway.dialects.registry import DecodeOptions
from gateway.dialects.seal import Keys
from gateway.eligible import PoolFilter
from gateway.errors import GatewayError
from gateway.placement import at_once
from gateway.runtime import Runtime
from policies.enforcement import enforce
from policies.traits import RequestTraits, needs
from tests.unit.policies.contracts_of_glm import NIM, OFFABLE, PYTHON, RUST, SMALL

BAR_US = 5.0
POOLS = (NIM, RUST, PYTHON)
PLAIN = RequestTraits(prompt_min=20_000, prompt_max=60_000, max_output=4096, needs=needs(tools=True))
FILTER: Mapping[str, tuple[RequestTraits, tuple[Capabilities, ...]]] = {
    "served": (PLAIN, POOLS),
    "stop": (RequestTraits(prompt_max=60_000, needs=needs(tools=True, stop=True)), POOLS),
    "effort": (RequestTraits(prompt_max=60_000, effort="medium"), (NIM, OFFABLE, PYTHON)),
    "rerouted": (RequestTraits(prompt_max=60_000, needs=needs(modalities=["image"])), (RUST, NIM, PYTHON)),
    "refused": (RequestTraits(prompt_max=60_000, needs=needs(modalities=["video"])), (NIM, RUST, SMALL)),
}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
HI = [{"role": "user", "content": "x" * 1000}]


def best_us(work: Callable[[], object], rounds: int = 500) -> float:
    """Microseconds of one call: the best of many short rounds, so that some fall between what others do here."""
    return min(timeit.repeat(work, number=rounds, repeat=400)) / rounds * 1e6


class Scene:
    """Three pools of one model, as a gateway holds them: all GLM, the second without image input."""

    def __init__(self) -> None:
        kinds, clock = builtin(), SystemClock()
        contract = {"efforts": ["low", "high", "max"], "default_effort": "max", "max_context": 1_048_576}
        modalities = (["text", "image"], ["text"], ["text", "image"])
        pools = [
            {"name": f"p{i}", "engine": "vllm", "model": "glm", "replicas": [f"http://127.0.0.{i + 1}:1"]}
            | {"contract": {**contract, "modalities": taken, "tool_modes": ["auto", "required"]}}
            for i, taken in enumerate(modalities)
        ]
        models = [{"name": "glm", "pools": ["p0", "p1", "p2"]}]
        config = Config.model_validate({"pools": pools, "models": models})
        fleet = Fleet(kinds, clock)
        self.runtime = Runtime(config, kinds, Keys.of_secret("bench"), random.Random(0).randbytes)
        self.book = ContractBook(kinds, fleet, clock, lambda *_: None)
        self.book.apply(config, self.runtime.bases())
        self.filter = PoolFilter(self.book, fleet, clock)
        self.chat = Chat()

    def ask(self, **fields: Any) -> Callable[[], object]:
        """What the gateway does about contracts for one Chat request."""
        body = json.dumps({"model": "glm", "messages": HI, **fields}).encode()
        asked = read_direct(body) or self.chat.decode_request(body, {}, DecodeOptions())
        return lambda: at_once(self.runtime, self.book, "glm", asked) or self._decide(asked)

    def _decide(self, asked: Request) -> object:
        """Nothing has to be counted, so that the coroutine ends without a wait."""
        decided = self.filter.decide(self.runtime, "glm", asked, self.chat)
        try:
            decided.send(None)
        except StopIteration as done:
            return done.value
        except GatewayError as refused:
            return refused
        raise AssertionError("it waits")


def gateway_figures() -> dict[str, float]:
    """Microseconds per exchange by kind of request, what the filter is told of the request included."""
    scene = Scene()
    named = {"type": "function", "function": {"name": "f"}}
    work = {
        "plain text": scene.ask(),
        "tools": scene.ask(tools=[TOOL]),
        "effort": scene.ask(reasoning_effort="medium"),
        "refused": scene.ask(tools=[TOOL], tool_choice=named),
    }
    return {name: best_us(one) for name, one in work.items()}


def main() -> int:
    """Measure all cases. The bar holds for each of the filter, and for plain text, which most exchanges are."""
    filtered = {name: best_us(lambda case=case: enforce(*case)) for name, case in FILTER.items()}
    whole = gateway_figures()
    passed = max(filtered.values()) <= BAR_US, whole["plain text"] <= BAR_US
    for name, good, figures in (("filter", passed[0], filtered), ("gateway", passed[1], whole)):
        shown = ", ".join(f"{case} {figure:.2f}" for case, figure in figures.items())
        print(f"{'PASS' if good else 'FAIL'} contract-{name}: {shown} us per exchange of 3 pools (bar {BAR_US:g})")
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
