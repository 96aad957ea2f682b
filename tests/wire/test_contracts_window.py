"""Length: what is counted, where a long prompt goes, where it never goes, and how an overflow is told."""

import asyncio
from typing import Any

import pytest

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import Answer, Asked, Engine, completes, engine, response, says

BUSY = {"error": {"message": "busy", "type": "Service Unavailable", "code": 503}}
TEXT = "x" * 2000  # 2000 tokens at most, 31 at least: only counting tells

BOTH = "input length and `max_tokens` exceed context limit"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC"


def counts(tokens: int, generate: Answer | None = None) -> Answer:
    """Every prompt has `tokens` tokens."""

    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if asked.path == "/tokenize":
            writer.write(response(200, {"count": tokens, "max_model_len": 4096, "tokens": []}))
        else:
            await (generate or completes())(made, reader, writer, asked)

    return answer


def window(url: str, tokens: int, **more: Any) -> dict[str, Any]:
    return pool_of(url, contract={"max_context": tokens, "reasoning": False, "stop_scope": "answer"}, **more)


def paths(made: Engine) -> list[str]:
    """What was asked for clients: generations, and counts of whole prompts."""
    return [asked.path for asked in made.asked if asked.body.get("messages")]


async def ask(one: Running, path: str = "chat/completions", *, text: str = TEXT, **body: Any) -> tuple[int, Any, Any]:
    """Status, headers and body."""
    prompt = {"input": text} if path == "responses" else {"messages": [{"role": "user", "content": text}]}
    async with one.client.post(f"{one.url}/v1/{path}", json={"model": "glm", **prompt, **body}) as answer:
        return answer.status, answer.headers, await answer.json()


async def test_a_prompt_that_fits_for_sure_is_not_counted() -> None:
    async with engine(counts(1)) as made, gateway(config_of([window(made.url, 4096)])) as one:
        assert (await ask(one, text="hi", max_tokens=100))[0] == 200
        assert (await ask(one, text="hi", max_tokens=100, stop=["x"]))[0] == 200
        assert paths(made) == ["/v1/chat/completions"] * 2


async def test_near_the_limit_the_engine_counts() -> None:
    async with engine(counts(500)) as made, gateway(config_of([window(made.url, 600)])) as one:
        assert (await ask(one, max_tokens=100))[0] == 200
        assert paths(made) == ["/tokenize", "/v1/chat/completions"]
        status, _, body = await ask(one, max_tokens=101)
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert body["error"]["param"] == "max_completion_tokens"
        assert "500 prompt tokens + 101 output tokens > 600" in body["error"]["message"]
        assert paths(made)[2:] == ["/tokenize"]
        await one.settled()


@pytest.mark.parametrize("broken", [response(500, {"error": "no"}), response(200, {}), response(404, {"detail": "?"})])
async def test_when_counting_fails_the_engine_decides(broken: bytes) -> None:
    message = "This model's maximum context length is 600 tokens. However, your prompt contains 900 input tokens."
    error = {"error": {"message": message, "type": "BadRequestError", "param": None, "code": 400}}

    async def answer(_: Engine, __: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        writer.write(broken if asked.path == "/tokenize" else response(400, error))

    async with engine(answer) as made, gateway(config_of([window(made.url, 600)])) as one:
        status, _, body = await ask(one)
        assert (status, body["error"]["code"]) == (400, "context_length_exceeded")
        assert paths(made) == ["/tokenize", "/v1/chat/completions"]


@pytest.mark.parametrize(
    ("answered", "asked_again"),
    [
        (response(200, {}), False),
        (response(404, {"detail": "Not Found"}), False),
        (response(400, {"error": "this template refuses that"}), True),
        (response(503, BUSY), True),
    ],
)
async def test_an_engine_that_does_not_count_is_left_alone_for_a_while(
    answered: bytes, asked_again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(made: Engine, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        if asked.path == "/tokenize":
            writer.write(answered)
        else:
            await completes()(made, reader, writer, asked)

    async with engine(answer) as made, gateway(config_of([window(made.url, 600)])) as one:
        assert [(await ask(one))[0] for _ in range(3)] == [200] * 3
        assert paths(made).count("/tokenize") == (3 if asked_again else 1)
    monkeypatch.setattr("gateway.eligible._UNABLE_S", 0.0)
    async with engine(answer) as made, gateway(config_of([window(made.url, 600)])) as one:
        assert [(await ask(one))[0] for _ in range(2)] == [200] * 2
        assert paths(made).count("/tokenize") == 2, "it may be another engine by now"


@pytest.mark.parametrize(
    ("tokens", "asked", "words"),
    [
        (700, 9, "prompt is too long: 700 tokens > 600 maximum"),
        (
            590,
            64,
            f"{BOTH}: 590 + 64 > 600, decrease input length or `max_tokens` and try again",
        ),
    ],
)
async def test_messages_clients_read_the_numbers_out_of_the_words(tokens: int, asked: int, words: str) -> None:
    async with engine(counts(tokens)) as made, gateway(config_of([window(made.url, 600)])) as one:
        status, _, body = await ask(one, "messages", max_tokens=asked)
        assert (status, body["error"]) == (400, {"type": "invalid_request_error", "message": words})
        assert paths(made) == ["/tokenize"]


async def test_a_prompt_that_fits_nowhere_is_counted_for_its_numbers() -> None:
    async with engine(counts(70_000)) as made, gateway(config_of([window(made.url, 600)])) as one:
        _, _, body = await ask(one, "messages", text="x" * 200_000, max_tokens=9)
        assert body["error"]["message"] == "prompt is too long: 70000 tokens > 600 maximum"
        status, _, body = await ask(one, "responses", text="x" * 200_000)
        assert (status, body["error"]["code"], body["error"]["param"]) == (400, "context_length_exceeded", "input")


async def test_a_long_prompt_goes_where_it_fits() -> None:
    async with engine(counts(900)) as small, engine(completes()) as large:
        pools = [window(small.url, 600), window(large.url, 100_000, name="b")]
        async with gateway(config_of(pools)) as one:
            status, headers, _ = await ask(one)
            assert (status, headers["x-gateway-pool"]) == (200, "b")
            assert (await ask(one, text="hi"))[1]["x-gateway-pool"] in {"a", "b"}


@pytest.mark.parametrize("counted", [900, None])
async def test_never_to_a_smaller_window_whatever_fails(counted: int | None) -> None:
    script = counts(counted) if counted else completes()  # the latter counts nothing
    async with engine(script) as small, engine(says(response(503, BUSY))) as large:
        pools = [window(small.url, 600), window(large.url, 100_000, name="b")]
        async with gateway(config_of(pools)) as one:
            status, _, _ = await ask(one)
            assert status == 503
            assert "/v1/chat/completions" not in paths(small)
            await one.settled()


async def test_an_image_takes_room_that_nobody_can_count() -> None:
    content = [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}}]
    async with engine(counts(10)) as small, engine(says(response(503, BUSY))) as large:
        pools = [window(small.url, 8192), window(large.url, 100_000, name="b")]
        async with gateway(config_of(pools)) as one:
            body = {"model": "glm", "messages": [{"role": "user", "content": content}]}
            async with one.client.post(f"{one.url}/v1/chat/completions", json=body) as answer:
                assert answer.status == 503
            assert paths(small) == []


async def test_counting_tokens_knows_no_window() -> None:
    async with engine(counts(9000)) as made, gateway(config_of([window(made.url, 600)])) as one:
        status, _, body = await ask(one, "messages/count_tokens")
        assert (status, body) == (200, {"input_tokens": 9000})
