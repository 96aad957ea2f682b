"""Responses that are stored: continued, read, listed, deleted; over memory and over Redis."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

import pytest

from tests.support.app import Running, config_of, gateway, pool_of
from tests.support.engine import DONE, ROLE, Engine, completes, engine, finish, response, says, streams, text
from tests.support.valkey import valkey_server

UNKNOWN = "resp_" + "0" * 48


@pytest.fixture(scope="module")
def redis_url() -> Iterator[str]:
    with valkey_server() as url:
        yield url


@asynccontextmanager
async def running(made: Engine, **more: Any) -> AsyncIterator[Running]:
    async with gateway(config_of([pool_of(made.url)], **more)) as one:
        yield one


async def create(one: Running, status: int = 200, headers: dict[str, str] | None = None, **body: Any) -> Any:
    asked = {"model": "glm", "input": "hi", **body}
    async with one.client.post(f"{one.url}/v1/responses", json=asked, headers=headers) as answer:
        assert answer.status == status, await answer.text()
        return await answer.json()


async def call(one: Running, method: str, path: str, status: int = 200, **options: Any) -> Any:
    async with one.client.request(method, f"{one.url}/v1/responses/{path}", **options) as answer:
        assert answer.status == status, await answer.text()
        assert answer.headers.get("x-request-id") or status >= 400
        return await answer.json()


def said(made: Engine) -> list[tuple[str, Any]]:
    return [(message["role"], message["content"]) for message in made.chats[-1].body["messages"]]


@pytest.mark.parametrize("kind", ["memory", "redis"])
async def test_a_conversation_goes_on_from_what_is_stored(kind: str, request: pytest.FixtureRequest) -> None:
    state = {} if kind == "memory" else {"state": {"url": request.getfixturevalue("redis_url")}}
    async with engine(completes()) as made, running(made, **state) as one:
        first = await create(one, input="one", instructions="Be brief.")
        assert first["store"] is True
        second = await create(one, input="two", previous_response_id=first["id"])
        assert second["previous_response_id"] == first["id"]
        assert said(made) == [("user", "one"), ("assistant", "Hello"), ("user", "two")]
        third = await create(one, input="three", previous_response_id=second["id"], instructions="Be long.")
        assert said(made) == [
            ("system", "Be long."),
            ("user", "one"),
            ("assistant", "Hello"),
            ("user", "two"),
            ("assistant", "Hello"),
            ("user", "three"),
        ]
        assert await call(one, "GET", first["id"]) == first
        listed = await call(one, "GET", f"{third['id']}/input_items?order=asc")
        assert [item["content"][0]["text"] for item in listed["data"]] == ["one", "Hello", "two", "Hello", "three"]
        await one.settled()


async def test_it_goes_on_after_a_restart_with_redis_where_its_kv_lies(redis_url: str) -> None:
    model = {"name": "glm", "pools": ["a"], "routing": "sticky"}
    state = {"state": {"url": redis_url}, "models": [model]}
    async with engine(completes()) as made, engine(completes()) as other:
        pools = [pool_of(made.url, other.url, name="a")]
        async with gateway(config_of(pools, **state)) as one:
            first = await create(one, input="one")
        served = made if made.chats else other
        async with gateway(config_of(pools, **state)) as one:
            for word in ("two", "three", "four"):
                await create(one, input=word, previous_response_id=first["id"])
        assert len(served.chats) == 4


async def test_a_streamed_response_is_stored_before_its_end_is_told() -> None:
    async with engine(completes()) as made, running(made) as one:
        asked = {"model": "glm", "input": "hi", "stream": True}
        async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
            events = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: ")]
        assert events[-1]["type"] == "response.completed"
        assert await call(one, "GET", events[-1]["response"]["id"]) == events[-1]["response"]
        await one.settled()


async def test_what_was_deleted_is_gone_and_its_conversation_with_it() -> None:
    async with engine(completes()) as made, running(made) as one:
        first = await create(one)
        second = await create(one, previous_response_id=first["id"])
        gone = await call(one, "DELETE", first["id"])
        assert gone == {"id": first["id"], "object": "response", "deleted": True}
        for method, path in (("GET", first["id"]), ("DELETE", first["id"]), ("GET", f"{first['id']}/input_items")):
            error = (await call(one, method, path, 404))["error"]
            assert error["type"] == "invalid_request_error"
        assert (await call(one, "GET", second["id"]))["id"] == second["id"]
        error = (await create(one, 400, previous_response_id=second["id"]))["error"]
        assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")


@pytest.mark.parametrize("unknown", [UNKNOWN, "resp_x", "a:b/c", ""])
async def test_an_unknown_previous_response_is_named(unknown: str) -> None:
    async with engine(completes()) as made, running(made) as one:
        error = (await create(one, 400, previous_response_id=unknown))["error"]
        assert (error["code"], error["param"]) == ("previous_response_not_found", "previous_response_id")
        assert not made.chats


async def test_what_is_not_to_be_stored_is_not() -> None:
    async with engine(completes()) as made, running(made) as one:
        first = await create(one, store=False)
        assert first["store"] is False
        await call(one, "GET", first["id"], 404)
        await create(one, 400, previous_response_id=first["id"])


async def test_a_tenant_sees_only_its_own() -> None:
    digests = {name: sha256(name.encode()).hexdigest() for name in ("ann", "bob")}
    tenants = [{"name": name, "keys": [{"id": name, "sha256": digest}]} for name, digest in digests.items()]
    async with engine(completes()) as made, running(made, auth={"mode": "keys"}, tenants=tenants) as one:
        ann, bob = ({"authorization": f"Bearer {name}"} for name in ("ann", "bob"))
        first = await create(one, headers=ann)
        await call(one, "GET", first["id"], headers=ann)
        await call(one, "GET", first["id"], 404, headers=bob)
        await call(one, "DELETE", first["id"], 404, headers=bob)
        await create(one, 400, headers=bob, previous_response_id=first["id"])
        await call(one, "GET", first["id"], 401)


async def test_items_that_are_only_named_are_looked_up() -> None:
    async with engine(completes()) as made, running(made) as one:
        first = await create(one, input="one")
        reference = {"type": "item_reference", "id": first["output"][-1]["id"]}
        await create(one, input=[{"role": "user", "content": "one"}, reference, {"role": "user", "content": "two"}])
        assert said(made) == [("user", "one"), ("assistant", "Hello"), ("user", "two")]
        error = (await create(one, 400, input=[{"type": "item_reference", "id": "msg_x"}]))["error"]
        assert (error["code"], error["param"]) == ("item_not_found", "input[0]")


async def test_pages_of_input_items() -> None:
    async with engine(completes()) as made, running(made) as one:
        words = [{"role": "user", "content": str(number)} for number in range(5)]
        path = f"{(await create(one, input=words))['id']}/input_items"
        newest = await call(one, "GET", f"{path}?limit=2")
        assert [item["content"][0]["text"] for item in newest["data"]] == ["4", "3"]
        assert newest["has_more"] is True
        rest = await call(one, "GET", f"{path}?after={newest['last_id']}")
        assert [item["content"][0]["text"] for item in rest["data"]] == ["2", "1", "0"]
        assert rest["has_more"] is False
        for bad in ("limit=0", "limit=101", f"limit={'9' * 5000}", "limit=x", "order=up", "after=nothing"):
            error = (await call(one, "GET", f"{path}?{bad}", 400))["error"]
            assert error["param"] == bad.partition("=")[0]


async def test_a_broken_answer_is_stored_as_failed_and_cannot_be_continued() -> None:
    broken = streams(ROLE, text("Hel"), end=b"", hang_up=True)
    async with engine(broken) as made, running(made, retry={"attempts": 1}) as one:
        asked = {"model": "glm", "input": "hi", "stream": True}
        async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
            events = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: ")]
        assert events[-1]["type"] == "response.failed"
        failed = events[-1]["response"]
        assert (await call(one, "GET", failed["id"]))["status"] == "failed"
        error = (await create(one, 400, previous_response_id=failed["id"]))["error"]
        assert error["param"] == "previous_response_id"


async def test_without_a_store_nothing_is_promised() -> None:
    async with engine(completes()) as made, running(made, state={"store_responses": False}) as one:
        assert (await create(one))["store"] is False
        assert (await create(one, 400, previous_response_id=UNKNOWN))["error"]["param"] == "previous_response_id"
        assert (await create(one, 400, background=True))["error"]["param"] == "background"
        await call(one, "GET", UNKNOWN, 404)


async def test_with_redis_down_exchanges_go_on_and_say_that_they_are_not_stored() -> None:
    state = {"state": {"url": "unix:///nonexistent/socket"}}
    async with engine(completes()) as made, running(made, **state) as one:
        assert (await create(one))["store"] is False
        assert (await create(one, store=False))["store"] is False
        for body in ({"previous_response_id": UNKNOWN}, {"background": True}):
            error = (await create(one, 503, **body))["error"]
            assert error["type"] == "server_error"
        await call(one, "GET", UNKNOWN, 503)
        await one.settled()


async def test_a_response_that_is_too_large_is_answered_and_not_stored() -> None:
    async with engine(completes()) as made, running(made, state={"response_limit_bytes": 1000}) as one:
        first = await create(one)
        assert first["output"]
        await call(one, "GET", first["id"], 404)


async def test_a_synchronous_response_cannot_be_cancelled() -> None:
    async with engine(completes()) as made, running(made) as one:
        first = await create(one)
        await call(one, "POST", f"{first['id']}/cancel", 400)
        await call(one, "GET", f"{first['id']}?stream=true", 400)
        await call(one, "POST", f"{first['id']}/other", 404)
        await call(one, "POST", first["id"], 404)


async def test_an_engines_refusal_stores_nothing() -> None:
    refusal = says(response(400, {"error": {"message": "no", "code": 400}}))
    async with engine(refusal) as made, running(made) as one:
        await create(one, 400)
        assert len(one.app.store) == 0  # type: ignore[arg-type]
        await one.settled()


async def test_reasoning_and_calls_come_back_to_the_engine() -> None:
    calls = [{"index": 0, "id": "call_1", "type": "function", "function": {"name": "f", "arguments": "{}"}}]
    script = streams(
        ROLE,
        *(_delta(reasoning="Think."), _delta(tool_calls=calls), finish("tool_calls"), DONE),
    )
    async with engine(script) as made, running(made) as one:
        tools = [{"type": "function", "name": "f", "parameters": {"type": "object"}}]
        asked = {"model": "glm", "input": "hi", "stream": True, "tools": tools}
        async with one.client.post(f"{one.url}/v1/responses", json=asked) as answer:
            events = [json.loads(line[6:]) async for line in answer.content if line.startswith(b"data: ")]
        first = events[-1]["response"]
        output = [{"type": "function_call_output", "call_id": "call_1", "output": "42"}]
        async with one.client.post(
            f"{one.url}/v1/responses",
            json={**asked, "input": output, "previous_response_id": first["id"]},
        ) as answer:
            await answer.read()
        _, assistant, result = made.chats[-1].body["messages"]
        assert assistant["reasoning"] == "Think."
        assert assistant["tool_calls"][0]["id"] == result["tool_call_id"] == "call_1"


def _delta(**delta: Any) -> bytes:
    chunk = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "glm"}
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    return b"data: " + json.dumps(chunk | {"choices": [choice]}).encode() + b"\n\n"
