"""A scripted Pydantic AI agent behind its own adapters of AG-UI and of the AI SDK: `python server.py PORT`.

`make interop` installs it. The agent's loop, its tools, approvals and the wires are Pydantic AI's; only the model is
ours. The last words of the user say which scene is played. `GET /waiting` answers when a scene `wait` has begun, `GET
/left` when it was cancelled.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import uvicorn
from pydantic_ai import Agent, DeferredToolRequests
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ImageUrl, ModelMessage, ToolReturnPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, DeltaThinkingPart, DeltaToolCall, FunctionModel
from pydantic_ai.ui.ag_ui import AGUIAdapter
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

waiting, left = asyncio.Event(), asyncio.Event()


def call(name: str, arguments: str, number: int = 0) -> dict[int, DeltaToolCall]:
    return {number: DeltaToolCall(name, arguments, tool_call_id=f"call_{number + 1}")}


async def model(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    parts = [part for message in messages for part in message.parts]
    prompts = [part for part in parts if isinstance(part, UserPromptPart)]
    said = prompts[-1].content
    words = [said] if isinstance(said, str) else list(said)
    scene = next((w for w in words if isinstance(w, str)), "")
    returned = [p for p in parts[parts.index(prompts[-1]) :] if isinstance(p, ToolReturnPart)]
    if returned:
        yield "It is "
        yield f"{', '.join(str(r.content) for r in returned)}."
        return
    match scene:
        case "think":
            yield {0: DeltaThinkingPart(content="Hm, ")}
            yield {0: DeltaThinkingPart(content="hm.")}
            yield "Six times seven "
            yield "is 42."
        case "tool":
            yield call("weather_report", '{"city": ')
            yield {0: DeltaToolCall(json_args='"Paris"}')}
        case "ask":
            yield call("get_weather", '{"city": "Paris"}')
            yield call("get_weather", '{"city": "Rome"}', 1)
        case "wipe":
            yield call("wipe", "{}")
        case "error":
            yield "half "
            yield "an answer"
            raise ValueError("the model fell over")
        case "full":
            body = {"message": "The model is full. Please try again in 20s.", "code": "rate_limit_exceeded"}
            raise ModelHTTPError(429, "gpt", body)
        case "wait":
            yield "I am "
            yield "waiting"
            waiting.set()
            try:
                await asyncio.Event().wait()
            finally:
                left.set()
        case "look":
            yield f"I see: {', '.join(w.url for w in words if isinstance(w, ImageUrl))}"
        case "before":
            yield f"Before that: {prompts[-2].content}"
        case _:
            yield "You "
            yield f"said: {scene} \u2028 你好 🙂"


agent = Agent(FunctionModel(stream_function=model), output_type=[str, DeferredToolRequests])


@agent.tool_plain
def weather_report(city: str) -> str:
    return f"sunny in {city}"


@agent.tool_plain(requires_approval=True)
def wipe() -> str:
    return "wiped"


async def run(request: Request) -> Response:
    return await AGUIAdapter.dispatch_request(request, agent=agent)


async def chat(request: Request) -> Response:
    return await VercelAIAdapter.dispatch_request(request, agent=agent, sdk_version=6)


async def health(request: Request) -> Response:
    return JSONResponse({"ok": True})


def tells(event: asyncio.Event) -> Callable[[Request], Awaitable[Response]]:
    async def told(request: Request) -> Response:
        await event.wait()
        event.clear()
        return JSONResponse({"ok": True})

    return told


app = Starlette(
    routes=[
        Route("/agent", run, methods=["POST"]),
        Route("/chat", chat, methods=["POST"]),
        Route("/health", health),
        Route("/waiting", tells(waiting)),
        Route("/left", tells(left)),
    ]
)

if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
