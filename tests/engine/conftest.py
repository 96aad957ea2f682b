"""Real engines and a gateway in front of them, shared by all engine tests.

`make test-engines` starts the engines; a test that needs one that is not there is skipped.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from openai import OpenAI

from tests.engine.servers import MODEL, SGLANG, VLLM, Kind, given
from tests.support.gateway import KEY, Gateway, gateway

ALIASES = {VLLM.name: "smol-vllm", SGLANG.name: "smol-sglang"}
EITHER = "smol"  # the name that both pools serve


def config(vllm_url: str, sglang_url: str) -> dict[str, Any]:
    """One pool of each engine, reachable apart and together."""
    urls = {VLLM.name: vllm_url, SGLANG.name: sglang_url}
    return {
        "pools": [{"name": name, "engine": name, "model": MODEL, "replicas": [url]} for name, url in urls.items()],
        "models": [
            *({"name": alias, "pools": [pool]} for pool, alias in ALIASES.items()),
            {"name": EITHER, "pools": list(urls)},
        ],
    }


@pytest.fixture(scope="session")
def vllm_url() -> str:
    """Base URL of a real vLLM."""
    return _url(VLLM)


@pytest.fixture(scope="session")
def sglang_url() -> str:
    """Base URL of a real SGLang."""
    return _url(SGLANG)


@pytest.fixture(scope="session")
def engine_gateway(vllm_url: str, sglang_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    """A gateway in front of both, for all tests that leave it as it was."""
    with gateway(config(vllm_url, sglang_url), tmp_path_factory.mktemp("gateway")) as running:
        yield running


@pytest.fixture(scope="session")
def client(engine_gateway: Gateway) -> Iterator[OpenAI]:
    """The OpenAI SDK pointed at the gateway, as an app would be."""
    with OpenAI(base_url=f"{engine_gateway.url}/v1", api_key=KEY, max_retries=0, timeout=120) as openai:
        yield openai


@pytest.fixture(params=[VLLM.name, SGLANG.name])
def model(request: pytest.FixtureRequest) -> str:
    """The client-side name of a model of each pool in turn."""
    return ALIASES[request.param]


def _url(kind: Kind) -> str:
    url = given(kind)
    if url is None:
        pytest.skip(f"{kind.variable} is not set: run `make test-engines`")
    return url
