"""Exchanges end to end: what reaches the engine, what reaches the client, and when the 200 is sent."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.app import config_of, gateway, pool_of
from tests.support.engine import (
    COMPLETION,
    DONE,
    ROLE,
    STREAM_HEAD,
    Answer,
    chunk,
    completes,
    engine,
    finish,
    hangs,
    response,
    says,
    streams,
    text,
)


def events_of(body: bytes) -> list[Any]:
    frames = [block.removeprefix(b"data: ") for block in body.strip().split(b"\n\n")]
    return [frame.decode() if frame == b"[DONE]" else json.loads(frame) for frame in frames]


def text_of(body: bytes) -> str:
    events = [event for event in events_of(body) if event != "[DONE]"]
    return "".join(event["choices"][0]["delta"].get("content") or "" for event in events if event.get("choices"))


async def test_an_answer_that_is_not_streamed() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.chat() as answer:
            assert answer.status == 200
            assert (await answer.json())["choices"] == COMPLETION["choices"]
            assert answer.headers["x-request-id"] == answer.headers["request-id"]
            assert answer.headers["x-gateway-pool"] == "a"
        await running.settled()


async def test_a_streamed_answer() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.chat({"stream": True}) as answer:
            body = await answer.read()
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert text_of(body) == "Hello"
        assert body.endswith(b"data: [DONE]\n\n")
        await running.settled()


async def test_the_client_sees_the_name_it_used_and_the_engine_its_own() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        for stream in (False, True):
            async with running.chat({"model": "glm-fast", "stream": stream}) as answer:
                body = await answer.read()
            assert b'"glm-fast"' in body.replace(b": ", b":")
            assert b'"model":"glm"' not in body.replace(b": ", b":")
        assert [asked.body["model"] for asked in made.chats] == ["glm", "glm"]


async def test_what_reaches_the_engine() -> None:
    sent = {"authorization": "Bearer secret", "cookie": "a=b", "x-data-parallel-rank": "3", "x-request-id": "mine",
            "traceparent": "00-" + "a" * 32 + "-" + "b" * 16 + "-01", "tracestate": "vendor=1"}  # fmt: skip
    body = {"kv_transfer_params": {"do_remote_prefill": True}, "priority": -5, "cache_salt": "x", "bootstrap_room": 7}
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.chat(body, headers=sent) as answer:
            assert answer.status == 200
            assert answer.headers["x-client-request-id"] == "mine"
        asked = made.chats[0]
        assert not {"authorization", "cookie", "x-data-parallel-rank"} & asked.headers.keys()
        assert not body.keys() & asked.body.keys()
        assert asked.headers["traceparent"].startswith("00-" + "a" * 32)
        assert asked.headers["traceparent"] != sent["traceparent"]
        assert asked.headers["tracestate"] == "vendor=1"
        assert asked.headers["x-request-id"].startswith(answer.headers["x-request-id"])


async def test_no_200_before_the_engines_first_real_frame() -> None:
    queue_full = b'data: {"error":{"object":"error","message":"full","type":"SERVICE_UNAVAILABLE","code":503}}\n\n'
    async with (
        engine(streams(queue_full, DONE)) as made,
        gateway(config_of([pool_of(made.url, engine="sglang")], retry={"attempts": 1})) as running,
    ):
        async with running.chat({"stream": True}) as answer:
            assert answer.status == 503
            assert (await answer.json())["error"]["code"] == "server_overloaded"
        await running.settled()


ERROR_FRAME = b'data: {"error": {"message": "Internal server error", "code": 500}}\n\n'
RETRYABLE: dict[str, Answer] = {
    "hang up": says(hang_up=True),
    "reset in the head": says(b"HTTP/1.1 200 OK\r\ncontent", hang_up=True),
    "reset after the head": says(STREAM_HEAD, hang_up=True),
    "reset after the role": says(STREAM_HEAD + chunk(ROLE), hang_up=True),
    "500": says(response(500, {"error": {"message": "boom /opt/x.py", "code": 500}})),
    "503 vllm": says(response(503, {"error": {"message": "The engine is currently busy", "code": 503}})),
    "503 sglang": says(response(503, {"object": "error", "message": "The request queue is full.", "code": 503})),
    "429": says(response(429, {"error": {"message": "slow down", "code": 429}})),
    "html": says(response(502, b"<html>Bad gateway</html>", content_type="text/html")),
    "error frame": streams(b'data: {"error":{"message":"queue","type":"x","code":503}}\n\n', DONE),
    "empty stream": streams(),
    "done at once": streams(DONE),
    "garbage": says(b"SSH-2.0-OpenSSH\r\n\r\n", hang_up=True),
    "no stream": says(response(200, {"error": {"message": "x", "code": 500}})),
}


@pytest.mark.parametrize("name", RETRYABLE)
async def test_a_failure_before_the_first_byte_goes_to_the_next_replica(name: str) -> None:
    async with engine(RETRYABLE[name]) as bad, engine(completes()) as good:
        async with gateway(config_of([pool_of(bad.url, good.url)])) as running:
            for _ in range(6):
                async with running.chat({"stream": True}) as answer:
                    assert answer.status == 200
                    assert text_of(await answer.read()) == "Hello"
            assert bad.chats
            await running.settled()


async def test_nobody_listens_on_the_first_replica() -> None:
    async with engine(completes()) as gone:
        dead = gone.url
    async with engine(completes()) as good, gateway(config_of([pool_of(dead, good.url)])) as running:
        for _ in range(6):
            async with running.chat() as answer:
                assert answer.status == 200
        await running.settled()


async def test_a_clients_fault_is_told_and_never_retried() -> None:
    error = {"message": "temperature /usr/lib/vllm.py", "param": "temperature", "code": 400}
    refusal = says(response(400, {"error": error}))
    async with engine(refusal) as one, engine(refusal) as two:
        async with gateway(config_of([pool_of(one.url, two.url)])) as running:
            async with running.chat() as answer:
                assert answer.status == 400
                error = (await answer.json())["error"]
            assert error["type"] == "invalid_request_error"
            assert "/usr/lib" not in error["message"]
            assert len(one.chats) + len(two.chats) == 1
            await running.settled()


async def test_attempts_are_bounded() -> None:
    broken = says(response(500, {}))
    async with engine(broken) as made:
        urls = [made.url + f"/{n}" for n in range(5)]
        async with gateway(config_of([pool_of(*urls)], retry={"attempts": 3})) as running:
            async with running.chat() as answer:
                assert answer.status == 500
                assert (await answer.json())["error"]["code"] == "upstream_error"
            assert len([asked for asked in made.asked if asked.path.endswith("completions")]) == 3


async def test_nothing_is_ready() -> None:
    async with engine(completes()) as made, gateway(config_of([pool_of(made.url)]), ready=False) as running:
        made_down = running.app.fleet.member("a/0")
        assert made_down is not None
        running.app.fleet.set_state(made_down, type(made_down.state).DOWN, "test")
        async with running.chat() as answer:
            assert answer.status == 503
            assert answer.headers["retry-after"] == "1"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", ["vllm", "sglang"])
async def test_a_client_that_leaves_frees_the_engine(stream: bool, kind: str) -> None:
    begun = [STREAM_HEAD, chunk(ROLE), chunk(text("He"))] if stream else []
    async with engine(hangs(*begun)) as made, gateway(config_of([pool_of(made.url, engine=kind)])) as running:
        asking = asyncio.ensure_future(running.chat({"stream": stream}).__aenter__())
        async with asyncio.timeout(2.0):
            while not made.chats:
                await asyncio.sleep(0.005)
        if stream:
            answer = await asking
            await answer.content.readany()
            answer.close()
        left_at = asyncio.get_running_loop().time()
        asking.cancel()
        async with asyncio.timeout(0.5):
            await made.left.wait()
        assert made.left_at - left_at < 0.5
        await running.settled()
        if kind == "sglang":
            async with asyncio.timeout(1.0):
                while not any(asked.path == "/abort_request" for asked in made.asked):
                    await asyncio.sleep(0.005)
            aborted = next(asked for asked in made.asked if asked.path == "/abort_request")
            assert aborted.body == {"rid": made.chats[0].body["rid"]}


@pytest.mark.parametrize(
    "ending",
    [
        streams(ROLE, text("He"), DONE, pause_s=0.02),
        streams(ROLE, text("He"), pause_s=0.02),
        streams(ROLE, text("He"), end=b"", hang_up=True, pause_s=0.02),
        streams(ROLE, text("He"), finish("abort"), DONE, pause_s=0.02),
        streams(ROLE, text("He"), ERROR_FRAME, DONE, pause_s=0.02),
    ],
)
async def test_an_answer_that_breaks_is_never_a_normal_end(ending: Answer) -> None:
    async with engine(ending) as one, engine(ending) as two:
        async with gateway(config_of([pool_of(one.url, two.url)])) as running:
            async with running.chat({"stream": True}) as answer:
                assert answer.status == 200
                body = await answer.read()
            assert text_of(body) == "He"
            *_, error, done = events_of(body)
            assert done == "[DONE]"
            assert error["error"]["type"] == "server_error"
            assert len(one.chats) + len(two.chats) == 1
            await running.settled()
            assert running.app.telemetry.recent[-1].error == "upstream_error"


async def test_a_whole_answer_without_a_finish_reason_is_an_error() -> None:
    cut = {**COMPLETION, "choices": [{**COMPLETION["choices"][0], "finish_reason": None}]}  # type: ignore[index]
    async with engine(says(response(200, cut))) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.chat() as answer:
            assert answer.status == 500


@pytest.mark.parametrize(
    ("limits", "script"),
    [
        ({"first_byte_s": 0.1}, hangs()),
        ({"first_byte_s": 0.1}, hangs(STREAM_HEAD)),
        ({"total_s": 0.15}, hangs()),
    ],
)
async def test_an_engine_that_never_begins_times_out(limits: dict[str, float], script: Answer) -> None:
    async with engine(script) as made:
        config = config_of([pool_of(made.url, timeouts=limits)], retry={"attempts": 1})
        async with gateway(config) as running:
            async with running.chat({"stream": True}) as answer:
                assert answer.status == 504
                assert (await answer.json())["error"]["code"] == "timeout"
            await running.settled()
        async with asyncio.timeout(1.0):
            await made.left.wait()


@pytest.mark.parametrize("limits", [{"idle_s": 0.1}, {"total_s": 0.15}])
async def test_an_engine_that_stops_in_the_middle_times_out(limits: dict[str, float]) -> None:
    async with engine(hangs(STREAM_HEAD, chunk(ROLE), chunk(text("He")))) as made:
        async with gateway(config_of([pool_of(made.url, timeouts=limits)])) as running:
            async with running.chat({"stream": True}) as answer:
                body = await answer.read()
            assert events_of(body)[-2]["error"]["code"] == "timeout"
            await running.settled()


async def test_silence_is_filled_with_heartbeats_and_a_retry_stays_possible() -> None:
    slow = says(STREAM_HEAD, b"", b"", b"", pause_s=0.1, hang_up=True)
    async with engine(slow) as bad, engine(completes()) as good:
        config = config_of([pool_of(bad.url, good.url)], listen={"heartbeat_after_s": 0.05})
        async with gateway(config) as running:
            beats = 0
            for _ in range(6):
                async with running.chat({"stream": True}) as answer:
                    body = await answer.read()
                beats += body.count(b": ping\n\n")
                assert b'"Hello"' in body
                assert body.endswith(DONE)
                assert b"error" not in body
            assert bad.chats
            assert beats


async def test_a_slow_client_slows_the_engine_and_not_the_gateway() -> None:
    big = text("x" * 16_000)

    async def flood(made: Any, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _: Any) -> None:
        writer.write(STREAM_HEAD + chunk(ROLE))
        for _ in range(2_000):  # 32 MB
            writer.write(chunk(big))
            made.written += len(big)
            await writer.drain()
        writer.write(chunk(finish()) + chunk(DONE) + b"0\r\n\r\n")

    async with engine(flood) as made, gateway(config_of([pool_of(made.url)])) as running:
        async with running.chat({"stream": True}, read_bufsize=1024) as answer:
            await answer.content.readany()
            before = -1
            async with asyncio.timeout(5.0):
                while made.written != before:
                    before = made.written
                    await asyncio.sleep(0.2)
            assert made.written < 24_000_000  # what the sockets' buffers hold, and no more
            body = await answer.read()
        assert body.endswith(DONE)
        await running.settled()
