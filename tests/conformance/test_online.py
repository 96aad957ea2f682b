"""The translation vectors over sockets: a gateway between them and an engine that plays its part, in both flavours."""

from __future__ import annotations

import threading
import urllib.parse
from collections.abc import Iterator

import pytest

from tests.conformance import offline, online
from tests.support.app import config_of, gateway, pool_of
from tests.support.threads import in_thread

ENGINES = ("vllm", "sglang")
VECTORS = offline.load()


@pytest.fixture(scope="module")
def engine() -> Iterator[online.Engine]:
    with online.Engine(0) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def url(engine: online.Engine) -> Iterator[urllib.parse.SplitResult]:
    at = f"http://127.0.0.1:{engine.server_port}"
    pools = [pool_of(at, name=kind, engine=kind, breaker={"enabled": False}) for kind in ENGINES]
    config = config_of(pools, models=[{"name": kind, "pools": [kind]} for kind in ENGINES])
    with in_thread(gateway(config)) as running:
        yield urllib.parse.urlsplit(running.url)


@pytest.mark.parametrize("kind", ENGINES)
@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["id"])
def test_vector(vector, kind, engine, url):
    assert online.check(vector, engine, url, "none", kind) == []
