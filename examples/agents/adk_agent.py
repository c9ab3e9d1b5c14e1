"""An agent of google-adk: `pip install google-adk`. Its model is Gemini, or whatever `GOOGLE_GEMINI_BASE_URL` names."""

import json
import os
from collections.abc import AsyncIterator

from google.adk.agents import Agent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.events import Event as AdkEvent
from google.adk.runners import InMemoryRunner
from google.genai import types

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


def get_weather(city: str) -> str:
    """The weather of a city."""
    return f"It is sunny in {city}."


agent = Agent(
    name="friday",
    model=os.environ.get("GEMINI_MODEL", "gemini-2.5-flash"),
    instruction="You are a helpful assistant.",
    tools=[get_weather],
)


async def run(request: Request) -> AsyncIterator[Event | Part]:
    runner = InMemoryRunner(agent, app_name="bridge")
    session = await runner.session_service.create_session(app_name="bridge", user_id="user")
    *before, last = [each for each in request.messages if each.role in ("user", "assistant")]
    for each in before:
        author, role = ("friday", "model") if each.role == "assistant" else ("user", "user")
        said = types.Content(role=role, parts=[types.Part(text=each.text)])
        await runner.session_service.append_event(session, AdkEvent(author=author, content=said))
    news = types.Content(role="user", parts=[types.Part(text=last.text)])
    streamed = RunConfig(streaming_mode=StreamingMode.SSE)
    turn = 0
    tokens = UsageReported(input=0, output=0)
    async for event in runner.run_async(user_id="user", session_id=session.id, new_message=news, run_config=streamed):
        if event.error_message or event.error_code:
            raise BackendError(event.error_message or event.error_code)
        for part in event.content.parts or [] if event.content else []:
            if part.text and event.partial:
                delta = ReasoningDelta if part.thought else TextDelta
                yield delta(f"{delta.__name__}-{turn}", part.text)
            elif part.function_call and not event.partial:
                call = part.function_call
                yield ToolCall(call.id, call.name, json.dumps(call.args or {}))
            elif part.function_response:
                done = part.function_response
                yield ToolResult(done.id, [Text(json.dumps(done.response))])
        if not event.partial:
            turn += 1
            if usage := event.usage_metadata:
                tokens = UsageReported(
                    tokens.input + (usage.prompt_token_count or 0), tokens.output + (usage.candidates_token_count or 0)
                )
    yield tokens
