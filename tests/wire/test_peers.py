"""Several gateways over one Valkey: each counts what the others have in flight."""

from __future__ import annotations

import asyncio

from tests.support.app import config_of, gateway, pool_of
from tests.support.engine import engine, hangs
from tests.support.valkey import valkey_server


async def test_each_counts_what_the_other_has_in_flight() -> None:
    with valkey_server() as address:
        async with engine(hangs()) as made:
            config = config_of([pool_of(made.url)], state={"url": address})
            async with gateway(config) as one, gateway(config) as two:
                await asyncio.sleep(0.1)  # both listen
                asking = asyncio.ensure_future(one.chat().__aenter__())
                async with asyncio.timeout(5.0):
                    while not (totals := two.app.peers.totals()):
                        await asyncio.sleep(0.02)
                assert totals["a/0"].exchanges == 1
                assert not one.app.peers.totals()
                asking.cancel()
                async with asyncio.timeout(5.0):
                    while two.app.peers.totals().get("a/0"):
                        await asyncio.sleep(0.02)
