"""Tool-calling loops of agent frameworks: `python loops.py NAME URL KEY MODEL`, in the frameworks' environment.

Each asks one question with two tools at hand, streams every turn, and runs the tools the model calls until it answers.
Prints one JSON line: the text of the last turn, the tool calls in the order of their results, and the reasoning seen.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

QUESTION = "How warm is it in Paris and in Rome, and how many people live in Rome?"
SYSTEM = "Use the tools."


def temperature(city: str) -> str:
    """The temperature of a city."""
    return json.dumps({"city": city, "celsius": {"Paris": 11, "Rome": 17}[city]})


def inhabitants(city: str, unit: str = "one") -> str:
    """How many people live in a city."""
    return json.dumps({"city": city, "unit": unit, "inhabitants": 2746})


TOOLS = {tool.__name__: tool for tool in (temperature, inhabitants)}


async def openai_agents(url: str, key: str, model: str) -> dict[str, Any]:
    """openai-agents over Responses; stateless, with encrypted reasoning."""
    from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
    from openai import AsyncOpenAI
    from openai.types.shared import Reasoning

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0)
    settings = ModelSettings(
        store=False, response_include=["reasoning.encrypted_content"], reasoning=Reasoning(effort="high")
    )
    agent = Agent(
        name="guide",
        instructions=SYSTEM,
        model=OpenAIResponsesModel(model, client),
        model_settings=settings,
        tools=[function_tool(tool) for tool in TOOLS.values()],
    )
    run = Runner.run_streamed(agent, QUESTION)
    thoughts = ""
    async for event in run.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.reasoning_summary_text.delta":
            thoughts += event.data.delta
    raws = [item.raw_item for item in run.new_items if item.type == "tool_call_item"]
    calls = [[raw.name, json.loads(raw.arguments)] for raw in raws]
    return {"text": run.final_output, "calls": calls, "thoughts": thoughts}


async def _pydantic_ai(model: Any, settings: Any) -> dict[str, Any]:
    from pydantic_ai import Agent

    agent = Agent(model, instructions=SYSTEM, tools=list(TOOLS.values()), model_settings=settings, retries=0)
    thoughts, calls, text = "", [], None
    async with agent.run_stream_events(QUESTION) as events:
        async for event in events:
            kind = event.event_kind
            if kind == "part_start" and event.part.part_kind == "thinking":
                thoughts += event.part.content
            elif kind == "part_delta" and event.delta.part_delta_kind == "thinking":
                thoughts += event.delta.content_delta or ""
            elif kind == "function_tool_call":
                calls.append([event.part.tool_name, event.part.args_as_dict()])
            elif kind == "agent_run_result":
                text = event.result.output
    return {"text": text, "calls": calls, "thoughts": thoughts}


async def pydantic_ai_responses(url: str, key: str, model: str) -> dict[str, Any]:
    """pydantic-ai over Responses."""
    from pydantic_ai.models.openai import OpenAIResponsesModel, OpenAIResponsesModelSettings
    from pydantic_ai.providers.openai import OpenAIProvider

    provider = OpenAIProvider(base_url=f"{url}/v1", api_key=key)
    settings = OpenAIResponsesModelSettings(openai_reasoning_effort="high", openai_reasoning_summary="detailed")
    return await _pydantic_ai(OpenAIResponsesModel(model, provider=provider), settings)


async def pydantic_ai_messages(url: str, key: str, model: str) -> dict[str, Any]:
    """pydantic-ai over Messages."""
    from pydantic_ai.models.anthropic import AnthropicModel, AnthropicModelSettings
    from pydantic_ai.providers.anthropic import AnthropicProvider

    settings = AnthropicModelSettings(anthropic_thinking={"type": "enabled", "budget_tokens": 2048}, max_tokens=4096)
    return await _pydantic_ai(AnthropicModel(model, provider=AnthropicProvider(base_url=url, api_key=key)), settings)


async def _langchain(model: Any) -> dict[str, Any]:
    from langchain_core.messages import HumanMessage, SystemMessage
    from langchain_core.tools import tool

    tools = {name: tool(function) for name, function in TOOLS.items()}
    bound = model.bind_tools(list(tools.values()))
    history: list[Any] = [SystemMessage(SYSTEM), HumanMessage(QUESTION)]
    thoughts, calls = "", []
    while True:
        whole = None
        async for chunk in bound.astream(history):
            whole = chunk if whole is None else whole + chunk
        history.append(whole)
        for block in whole.content_blocks:
            thoughts += block["reasoning"] if block["type"] == "reasoning" else ""
        if not whole.tool_calls:
            return {"text": whole.text, "calls": calls, "thoughts": thoughts}
        for call in whole.tool_calls:
            calls.append([call["name"], call["args"]])
            history.append(await tools[call["name"]].ainvoke(call))


async def langchain_openai(url: str, key: str, model: str) -> dict[str, Any]:
    """langchain-openai over Responses."""
    from langchain_openai import ChatOpenAI

    return await _langchain(
        ChatOpenAI(
            model=model,
            base_url=f"{url}/v1",
            api_key=key,
            max_retries=0,
            use_responses_api=True,
            store=False,
            include=["reasoning.encrypted_content"],
            reasoning={"effort": "high", "summary": "auto"},
        )
    )


async def langchain_anthropic(url: str, key: str, model: str) -> dict[str, Any]:
    """langchain-anthropic over Messages."""
    from langchain_anthropic import ChatAnthropic

    thinking = {"type": "enabled", "budget_tokens": 2048}
    return await _langchain(
        ChatAnthropic(model=model, base_url=url, api_key=key, max_retries=0, max_tokens=4096, thinking=thinking)
    )


LOOPS = {
    loop.__name__: loop
    for loop in (openai_agents, pydantic_ai_responses, pydantic_ai_messages, langchain_openai, langchain_anthropic)
}

if __name__ == "__main__":
    name, *where = sys.argv[1:]
    print(json.dumps(asyncio.run(LOOPS[name](*where))))
