"""Real answers of real engines through the gateway, asked as an app asks: with the OpenAI SDK."""

from __future__ import annotations

import json
from typing import Any

import pytest
from openai import OpenAI

pytestmark = pytest.mark.engine

QUESTION: list[Any] = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": "get_weather",
            "description": "Weather of a city",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "maxLength": 12}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


def test_chat(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    assert "Paris" in (answer.choices[0].message.content or "")
    assert answer.choices[0].finish_reason == "stop"
    assert answer.model == model
    assert answer.usage is not None
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def test_every_answer_has_a_request_id(client: OpenAI, model: str) -> None:
    raw = client.chat.completions.with_raw_response.create(model=model, messages=QUESTION, max_tokens=4)
    assert raw.headers["x-request-id"]
    assert raw.headers["request-id"] == raw.headers["x-request-id"]


def test_chat_streamed(client: OpenAI, model: str) -> None:
    chunks = list(
        client.chat.completions.create(
            model=model,
            messages=QUESTION,
            temperature=0,
            max_tokens=24,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices and chunk.choices[0].finish_reason]
    assert "Paris" in text
    assert finishes == ["stop"]
    assert chunks[-1].choices == []
    assert chunks[-1].usage is not None
    assert chunks[-1].usage.completion_tokens > 0


def test_streamed_text_equals_plain_text(client: OpenAI, model: str) -> None:
    plain = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24)
    stream = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=24, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
    assert streamed == plain.choices[0].message.content


def test_completions(client: OpenAI, model: str) -> None:
    prompt = "The capital of France is"
    plain = client.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=5)
    stream = client.completions.create(model=model, prompt=prompt, temperature=0, max_tokens=5, stream=True)
    assert "Paris" in plain.choices[0].text
    assert "".join(chunk.choices[0].text for chunk in stream if chunk.choices) == plain.choices[0].text


def test_required_tool_call(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, tools=WEATHER, tool_choice="required", temperature=0, max_tokens=80
    )
    assert answer.choices[0].finish_reason == "tool_calls"
    (call,) = answer.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert call.function.name == "get_weather"
    assert set(json.loads(call.function.arguments)) == {"city"}


def test_required_tool_call_streamed(client: OpenAI, model: str) -> None:
    stream = client.chat.completions.create(
        model=model, messages=QUESTION, tools=WEATHER, tool_choice="required", temperature=0, max_tokens=80, stream=True
    )
    names, arguments, finishes = [], "", []
    for chunk in stream:
        for choice in chunk.choices:
            finishes += [choice.finish_reason] if choice.finish_reason else []
            for call in choice.delta.tool_calls or []:
                names += [call.function.name] if call.function and call.function.name else []
                arguments += (call.function.arguments or "") if call.function else ""
    assert names == ["get_weather"]
    assert set(json.loads(arguments)) == {"city"}
    assert finishes == ["tool_calls"]


def test_logprobs(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(
        model=model, messages=QUESTION, temperature=0, max_tokens=6, logprobs=True, top_logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    tokens = logprobs.content or []
    assert len(tokens) == (answer.usage.completion_tokens if answer.usage else 0)
    assert all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in tokens)


@pytest.mark.parametrize("stream", [False, True])
def test_two_choices(client: OpenAI, model: str, stream: bool) -> None:
    arguments: dict[str, Any] = {"model": model, "messages": QUESTION, "n": 2, "max_tokens": 6, "temperature": 0.7}
    if stream:
        finished = {
            choice.index
            for chunk in client.chat.completions.create(**arguments, stream=True)
            for choice in chunk.choices
            if choice.finish_reason
        }
    else:
        finished = {choice.index for choice in client.chat.completions.create(**arguments).choices}
    assert finished == {0, 1}


@pytest.mark.parametrize("stream", [False, True])
def test_stop_string(client: OpenAI, model: str, stream: bool) -> None:
    arguments: dict[str, Any] = {
        "model": model,
        "messages": QUESTION,
        "temperature": 0,
        "max_tokens": 24,
        "stop": [" Paris"],
    }
    if stream:
        choices = [c for chunk in client.chat.completions.create(**arguments, stream=True) for c in chunk.choices]
        text = "".join(choice.delta.content or "" for choice in choices)
        finish = next(choice.finish_reason for choice in choices if choice.finish_reason)
    else:
        (choice,) = client.chat.completions.create(**arguments).choices
        text, finish = choice.message.content or "", choice.finish_reason
    assert text == "The capital of France is"
    assert finish == "stop"


def test_length_cut(client: OpenAI, model: str) -> None:
    answer = client.chat.completions.create(model=model, messages=QUESTION, temperature=0, max_tokens=2)
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 2


def test_models_are_the_gateways_own(client: OpenAI) -> None:
    assert {"smol", "smol-vllm", "smol-sglang"} <= {model.id for model in client.models.list()}
