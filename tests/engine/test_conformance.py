"""The client kit through the gateway against each real engine. What the small model does not manage is skipped."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.conformance.__main__ import CHECKS, outcome, parser
from tests.conformance.client import Ctx
from tests.support.gateway import KEY, Gateway

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

# Enough for every protocol, little enough for a CPU; `--long` is in characters, beyond the engines' 4096 tokens.
OPTIONS = ["--timeout", "300", "--max-tokens", "128", "--long", "40000"]


@pytest.mark.parametrize(("name", "check"), CHECKS, ids=[name for name, _ in CHECKS])
def test_check(name: str, check: Callable[[Ctx], None], engine_gateway: Gateway, model: str) -> None:
    result, why = outcome(check, Ctx(parser().parse_args([engine_gateway.url, KEY, model, *OPTIONS])))
    if result == "SKIP":
        pytest.skip(why)
    assert result == "PASS", why
