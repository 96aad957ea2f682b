"""The client kit through the gateway against each real engine. What the small model does not manage is skipped."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.conformance.__main__ import CHECKS, outcome, parser
from tests.conformance.client import Ctx
from tests.engine.servers import MODEL, SGLANG, VLLM, given
from tests.support.gateway import KEY, gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

# Enough for every protocol, little enough for a CPU; `--long` is in characters, beyond the engines' 4096 tokens.
OPTIONS = ["--timeout", "300", "--max-tokens", "96", "--long", "40000"]


@pytest.fixture(scope="module", params=[VLLM, SGLANG], ids=lambda kind: kind.name)
def url(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gateway in front of one engine."""
    kind, engine = request.param, given(request.param)
    if engine is None:
        pytest.skip(f"{kind.variable} is not set: run `make test-engines`")
    pools = [{"name": "a", "engine": kind.name, "model": MODEL, "replicas": [engine]}]
    config = {"pools": pools, "models": [{"name": MODEL, "pools": ["a"]}]}
    with gateway(config, tmp_path_factory.mktemp(kind.name)) as running:
        yield running.url


@pytest.mark.parametrize(("name", "check"), CHECKS, ids=[name for name, _ in CHECKS])
def test_check(name: str, check: Callable[[Ctx], None], url: str) -> None:
    with Ctx(parser().parse_args([url, KEY, MODEL, *OPTIONS])) as context:
        result, why = outcome(check, context)
    if result == "SKIP":
        pytest.skip(why)
    assert result == "PASS", why
