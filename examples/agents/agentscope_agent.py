"""An `Agent` of AgentScope 2: `pip install agentscope`.

The agent is made for each request: the conversation comes with it. Tools run without a question, because their
permission says so; AgentScope asks for all others.
"""

import os
from collections.abc import AsyncIterator

from agentscope.agent import Agent
from agentscope.credential import OpenAICredential
from agentscope.event import (
    ModelCallEndEvent,
    ReplyEndEvent,
    TextBlockDeltaEvent,
    ThinkingBlockDeltaEvent,
    ToolCallDeltaEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
    ToolResultEndEvent,
    ToolResultTextDeltaEvent,
)
from agentscope.message import AssistantMsg, TextBlock, UserMsg
from agentscope.model import OpenAIChatModel
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.state import AgentState
from agentscope.tool import FunctionTool, ToolChunk, Toolkit

from bridge import (
    BackendError,
    Event,
    Part,
    ReasoningDelta,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    UsageReported,
)

MODEL = OpenAIChatModel(
    OpenAICredential(
        api_key=os.environ.get("OPENAI_API_KEY", "unused"),
        base_url=os.environ.get("OPENAI_BASE_URL", "http://127.0.0.1:11434/v1"),
    ),
    model=os.environ.get("OPENAI_MODEL", "qwen3:8b"),
)


def get_weather(city: str) -> ToolChunk:
    """The weather of a city."""
    return ToolChunk(content=[TextBlock(text=f"It is sunny in {city}.")])


def make_agent(request: Request) -> Agent:
    names = {"user": UserMsg, "assistant": AssistantMsg}
    said = [names[each.role](each.role, each.text) for each in request.messages[:-1] if each.role in names]
    allowed = PermissionDecision(PermissionBehavior.ALLOW, "It only reads.")
    tools = Toolkit([FunctionTool(get_weather, permission=allowed)])
    return Agent("Friday", "You are a helpful assistant.", MODEL, tools, state=AgentState(context=said))


async def run(request: Request) -> AsyncIterator[Event | Part]:
    arguments: dict[str, str] = {}
    names: dict[str, str] = {}
    results: dict[str, str] = {}
    tokens = UsageReported(input=0, output=0)
    async for event in make_agent(request).reply_stream(UserMsg("user", request.messages[-1].text)):
        match event:
            case TextBlockDeltaEvent():
                yield TextDelta(event.block_id, event.delta)
            case ThinkingBlockDeltaEvent():
                yield ReasoningDelta(event.block_id, event.delta)
            case ToolCallStartEvent():
                names[event.tool_call_id], arguments[event.tool_call_id] = event.tool_call_name, ""
            case ToolCallDeltaEvent():
                arguments[event.tool_call_id] += event.delta
            case ToolCallEndEvent():
                call = event.tool_call_id
                yield ToolCall(call, names[call], arguments[call])
            case ToolResultTextDeltaEvent():
                results[event.tool_call_id] = results.get(event.tool_call_id, "") + event.delta
            case ToolResultEndEvent():
                call = event.tool_call_id
                yield ToolResult(call, [Text(results.pop(call, ""))], is_error=event.state == "error")
            case ModelCallEndEvent():
                tokens = UsageReported(tokens.input + event.input_tokens, tokens.output + event.output_tokens)
            case ReplyEndEvent() if event.error is not None:
                raise BackendError(event.error.message)
    yield tokens
