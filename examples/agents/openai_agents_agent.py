"""An agent of the OpenAI Agents SDK: `pip install openai-agents`."""

import os
from collections.abc import AsyncIterator

from agents import Agent, ModelSettings, OpenAIChatCompletionsModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

from bridge import Event, Part, Request, Text, TextDelta, ToolCall, ToolResult, UsageReported

set_tracing_disabled(True)  # traces go to OpenAI


@function_tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


client = AsyncOpenAI(
    base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1"),
    api_key=os.environ.get("OPENAI_API_KEY", "unused"),
)
agent = Agent(
    name="Friday",
    instructions="You are a helpful assistant.",
    model=OpenAIChatCompletionsModel(os.environ.get("OPENAI_MODEL", "qwen3:8b"), openai_client=client),
    model_settings=ModelSettings(include_usage=True),
    tools=[get_weather],
)


async def run(request: Request) -> AsyncIterator[Event | Part]:
    said = [{"role": each.role, "content": each.text} for each in request.messages if each.text]
    result = Runner.run_streamed(agent, input=said)
    text = 0
    async for event in result.stream_events():
        if event.type == "raw_response_event" and event.data.type == "response.output_text.delta":
            yield TextDelta(f"text-{text}", event.data.delta)
        elif event.type == "run_item_stream_event" and event.name == "tool_called":
            call = event.item.raw_item
            text += 1
            yield ToolCall(call.call_id, call.name, call.arguments)
        elif event.type == "run_item_stream_event" and event.name == "tool_output":
            yield ToolResult(event.item.raw_item["call_id"], [Text(str(event.item.output))])
    tokens = result.context_wrapper.usage
    yield UsageReported(tokens.input_tokens, tokens.output_tokens)
