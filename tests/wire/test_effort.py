"""The effort of a session stays what it was where the client does not name it."""

from typing import Any

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import Engine, completes, engine


async def effort(one: Running, made: Engine, **body: Any) -> Any:
    async with one.chat(body) as answer:
        assert answer.status == 200
    return made.chats[-1].body.get("reasoning_effort")


async def test_it_is_kept_per_session_and_model() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        default = await effort(one, made, prompt_cache_key="a")
        assert await effort(one, made, prompt_cache_key="a", reasoning_effort="low") == "low"
        assert await effort(one, made, prompt_cache_key="a") == "low"
        assert await effort(one, made, prompt_cache_key="b") == default
        assert await effort(one, made, prompt_cache_key="a", model="glm-x") == default
        assert await effort(one, made) == default
        assert await effort(one, made, prompt_cache_key="a", reasoning_effort="high") == "high"
        assert await effort(one, made, prompt_cache_key="a") == "high"


async def test_a_header_names_the_session_of_a_plain_request_too() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        one.client.headers["x-session-affinity"] = "a"
        assert await effort(one, made) is None
        assert await effort(one, made) is None
        assert await effort(one, made, reasoning_effort="medium") == "high"
        assert await effort(one, made) == "high"
        assert await effort(one, made) == "high"


async def test_the_turns_of_a_stored_conversation_are_a_session() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as one:
        asked: dict[str, Any] = {"model": "glm", "input": "hi", "reasoning": {"effort": "low"}}
        for _ in range(2):
            async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
                previous = (await answer.json())["id"]
            assert made.chats[-1].body["reasoning_effort"] == "low"
            asked = {"model": "glm", "input": "hi", "previous_response_id": previous}
