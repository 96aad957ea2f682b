"""What an exchange teaches the cost model, and when."""

from __future__ import annotations

import pytest

from tests.support.app import config_of, gateway, pool_of
from tests.support.simulator import simulator


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
async def test_a_late_first_token_is_told_while_its_answer_still_runs(engine: str) -> None:
    async with simulator(engine, model="glm", profile="h100-fp8", time_scale=0.2) as sim:
        config = config_of([pool_of(sim.server.url, engine=engine, hardware="h100-fp8")])
        models = tuple(model.model_copy(update={"routing": "latency"}) for model in config.models)
        async with gateway(config.model_copy(update={"models": models})) as running:
            words = "river " * 4000
            asked = {"messages": [{"role": "user", "content": words}], "max_tokens": 400, "stream": True}
            async with running.chat(asked) as answer:
                assert answer.status == 200
                await answer.content.readany()
                model = running.app._costs.model
                assert model is not None
                assert model.multipliers("a/0")["prefill_short"] > 2.0
                assert model.scores()[0].ttft_seen == 0
