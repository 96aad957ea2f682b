"""Clients that check everything they are told: each exchange ends as a full answer, a proper error, or by leaving."""

from __future__ import annotations

import asyncio
import enum
import json
import random
import re
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp

CHAT, COMPLETIONS, MESSAGES = "/v1/chat/completions", "/v1/completions", "/v1/messages"
LEAK = re.compile(r"Traceback|site-packages|\.py\b|127\.0\.0\.1|https?://")
PATIENCE_S = 60.0


class Outcome(enum.Enum):
    """How an exchange ended for the client. BROKEN must never happen."""

    FULL = "full"
    REFUSED = "refused"  # an error with a true HTTP status
    ENDED = "ended"  # an error event within a stream that had begun
    LEFT = "left"  # this client went away on purpose
    BROKEN = "broken"


@dataclass
class Tally:
    """Outcomes of a run; of the broken ones what was wrong."""

    outcomes: Counter[Outcome] = field(default_factory=Counter)
    statuses: Counter[int] = field(default_factory=Counter)
    broken: list[str] = field(default_factory=list)

    def add(self, outcome: Outcome, status: int, detail: str = "") -> None:
        """Count one exchange."""
        self.outcomes[outcome] += 1
        self.statuses[status] += 1
        if outcome is Outcome.BROKEN:
            self.broken.append(detail)


class BrokenAnswerError(Exception):
    """An answer that a client could take for something it is not."""


Behaviour = Callable[["Client", random.Random], Awaitable[tuple[Outcome, int]]]


class Client:
    """Many exchanges over one session."""

    def __init__(self, session: aiohttp.ClientSession, url: str, models: tuple[str, ...]) -> None:
        self._session = session
        self._url = url
        self._models = models
        self.tally = Tally()

    async def one(self, behaviour: Behaviour, rng: random.Random) -> None:
        """One exchange, counted."""
        try:
            async with asyncio.timeout(PATIENCE_S):
                outcome, status = await behaviour(self, rng)
        except BrokenAnswerError as error:
            self.tally.add(Outcome.BROKEN, 0, f"{behaviour.__name__}: {error}")
        except (aiohttp.ClientError, TimeoutError, ValueError, KeyError, IndexError, TypeError) as error:
            self.tally.add(Outcome.BROKEN, 0, f"{behaviour.__name__}: {error!r}")
        else:
            self.tally.add(outcome, status)

    def body(self, rng: random.Random, **extra: Any) -> dict[str, Any]:
        """A chat request of random length for a random model."""
        text = " ".join(rng.choices(("alpha", "beta", "gamma", "delta", "turbine"), k=rng.randint(1, 80)))
        messages = [{"role": "user", "content": f"{rng.random()} {text}"}]
        return {"model": rng.choice(self._models), "messages": messages, "max_tokens": rng.randint(1, 24), **extra}

    def post(self, path: str, body: Any) -> Any:
        """POST JSON, or bytes as they are; an async context manager of the answer."""
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self._session.post(self._url + path, data=data, headers={"content-type": "application/json"})


async def plain(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """A chat answer in one piece."""
    async with client.post(CHAT, client.body(rng)) as answer:
        text = await answer.text()
        if answer.status != 200:
            return refusal(answer.status, text)
        for choice in json.loads(text)["choices"]:
            check_finish(choice["finish_reason"])
        return Outcome.FULL, 200


async def completion(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """A completion in one piece."""
    body = client.body(rng)
    body["prompt"] = body.pop("messages")[0]["content"]
    async with client.post(COMPLETIONS, body) as answer:
        text = await answer.text()
        if answer.status != 200:
            return refusal(answer.status, text)
        check_finish(json.loads(text)["choices"][0]["finish_reason"])
        return Outcome.FULL, 200


async def streamed(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """A chat stream, read as it comes."""
    return await _stream(client, client.body(rng, stream=True, stream_options={"include_usage": True}))


async def two_choices(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """A stream of two choices."""
    return await _stream(client, client.body(rng, stream=True, n=2), choices=2)


async def slow_reader(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """A stream whose reader takes its time."""
    return await _stream(client, client.body(rng, stream=True), pause_s=0.02)


async def anthropic(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """The same engines in another dialect."""
    async with client.post(MESSAGES, client.body(rng)) as answer:
        text = await answer.text()
        if answer.status == 200:
            check_finish(json.loads(text)["stop_reason"])
            return Outcome.FULL, 200
        error = json.loads(text)
        if error["type"] != "error" or not error["error"]["message"]:
            raise BrokenAnswerError(f"not Anthropic's envelope: {text[:200]}")
        return Outcome.REFUSED, answer.status


async def leaves_stream(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """Goes away after some chunks."""
    async with client.post(CHAT, client.body(rng, stream=True)) as answer:
        if answer.status != 200:
            return refusal(answer.status, await answer.text())
        for _ in range(rng.randint(1, 4)):
            await answer.content.readany()
        answer.close()
        return Outcome.LEFT, 200


async def leaves_early(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """Goes away before any answer, if that takes long enough."""
    try:
        async with asyncio.timeout(rng.random() * 0.05):
            return await plain(client, rng)
    except TimeoutError:
        return Outcome.LEFT, 0


async def unknown_model(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """Asks for what nobody serves."""
    return await _must_be_refused(client, client.body(rng) | {"model": "nobody"}, 404)


async def bad_json(client: Client, rng: random.Random) -> tuple[Outcome, int]:
    """Sends half a body."""
    whole = json.dumps(client.body(rng)).encode()
    return await _must_be_refused(client, whole[: len(whole) // 2], 400)


async def _must_be_refused(client: Client, body: Any, status: int) -> tuple[Outcome, int]:
    async with client.post(CHAT, body) as answer:
        if answer.status != status:
            raise BrokenAnswerError(f"status {answer.status} instead of {status}")
        return refusal(answer.status, await answer.text())


async def _stream(
    client: Client, body: dict[str, Any], *, choices: int = 1, pause_s: float = 0.0
) -> tuple[Outcome, int]:
    async with client.post(CHAT, body) as answer:
        if answer.status != 200:
            return refusal(answer.status, await answer.text())
        received = bytearray()
        while piece := await answer.content.readany():
            received += piece
            if pause_s:
                await asyncio.sleep(pause_s)
    return check_stream(bytes(received), choices), 200


def check_stream(received: bytes, choices: int) -> Outcome:
    """Whether a chat stream is whole: every choice finished once, then [DONE]; or an error event, then its end."""
    payloads = [event[6:] for event in received.decode().split("\n\n") if event.startswith("data: ")]
    finished: Counter[int] = Counter()
    for number, payload in enumerate(payloads):
        if payload == "[DONE]":
            if number != len(payloads) - 1:
                raise BrokenAnswerError("something follows [DONE]")
            break
        chunk = json.loads(payload)
        if "error" in chunk:
            check_message(chunk["error"])
            if [rest for rest in payloads[number + 1 :] if rest != "[DONE]"]:
                raise BrokenAnswerError("something follows an error")
            return Outcome.ENDED
        for choice in chunk["choices"]:
            if choice["finish_reason"]:
                check_finish(choice["finish_reason"])
                finished[choice["index"]] += 1
    else:
        raise BrokenAnswerError(f"the stream just ends: ...{received[-200:]!r}")
    if finished != Counter(range(choices)):
        raise BrokenAnswerError(f"[DONE], but finished are {dict(finished)} of {choices} choices")
    return Outcome.FULL


def check_finish(reason: object) -> None:
    """A normal end has a reason, and an abort is none."""
    if reason not in {"stop", "length", "tool_calls", "end_turn", "max_tokens", "tool_use", "stop_sequence"}:
        raise BrokenAnswerError(f"finish reason {reason!r}")


def refusal(status: int, text: str) -> tuple[Outcome, int]:
    """A proper error: a true status and OpenAI's envelope."""
    if not 400 <= status < 600:
        raise BrokenAnswerError(f"status {status}")
    check_message(json.loads(text)["error"])
    return Outcome.REFUSED, status


def check_message(error: Any) -> None:
    """One line for people, without what is nobody's business."""
    message = error["message"]
    if not message or "\n" in message or LEAK.search(message) or not error["type"]:
        raise BrokenAnswerError(f"error object {error}")


MIX: dict[Behaviour, int] = {
    plain: 22,
    completion: 8,
    streamed: 40,
    two_choices: 5,
    slow_reader: 3,
    anthropic: 6,
    leaves_stream: 8,
    leaves_early: 4,
    unknown_model: 2,
    bad_json: 2,
}


async def many(client: Client, count: int, concurrency: int, rng: random.Random) -> Tally:
    """`count` exchanges of the mix, so many at once."""
    behaviours = iter(rng.choices(list(MIX), weights=list(MIX.values()), k=count))

    async def worker(own: random.Random) -> None:
        for behaviour in behaviours:
            await client.one(behaviour, own)

    async with asyncio.TaskGroup() as group:
        for _ in range(concurrency):
            group.create_task(worker(random.Random(rng.random())))
    return client.tally
