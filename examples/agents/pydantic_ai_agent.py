"""An agent of Pydantic AI: `pip install 'pydantic-ai-slim[openai]'`."""

import os
from collections.abc import AsyncIterator

from pydantic_ai import Agent, AgentRunResultEvent
from pydantic_ai.messages import (
    FunctionToolCallEvent,
    FunctionToolResultEvent,
    ModelRequest,
    ModelResponse,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    UserPromptPart,
)
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from bridge import Event, Message, Part, ReasoningDelta, Request, Text, TextDelta, ToolCall, ToolResult, UsageReported

agent = Agent(
    OpenAIChatModel(
        os.environ.get("OPENAI_MODEL", "qwen3:8b"),
        provider=OpenAIProvider(
            base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1"),
            api_key=os.environ.get("OPENAI_API_KEY", "unused"),
        ),
    ),
    instructions="You are a helpful assistant.",
)


@agent.tool_plain
def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


def earlier(message: Message) -> ModelRequest | ModelResponse:
    if message.role == "assistant":
        return ModelResponse([TextPart(message.text)])
    return ModelRequest([UserPromptPart(message.text)])


async def run(request: Request) -> AsyncIterator[Event | Part]:
    *before, last = [each for each in request.messages if each.role in ("user", "assistant")]
    part = 0
    async with agent.run_stream_events(last.text, message_history=[earlier(each) for each in before]) as events:
        async for event in events:
            match event:
                case PartStartEvent(part=TextPart(content=text)):
                    part += 1
                    yield TextDelta(f"text-{part}", text)
                case PartDeltaEvent(delta=TextPartDelta(content_delta=text)):
                    yield TextDelta(f"text-{part}", text)
                case PartStartEvent(part=ThinkingPart(content=text)):
                    part += 1
                    yield ReasoningDelta(f"thought-{part}", text)
                case PartDeltaEvent(delta=ThinkingPartDelta(content_delta=str(text))):
                    yield ReasoningDelta(f"thought-{part}", text)
                case FunctionToolCallEvent(part=call):
                    yield ToolCall(call.tool_call_id, call.tool_name, call.args_as_json_str())
                case FunctionToolResultEvent(part=result):
                    yield ToolResult(result.tool_call_id, [Text(str(result.content))])
                case AgentRunResultEvent(result=result):
                    yield UsageReported(result.usage.input_tokens, result.usage.output_tokens)
