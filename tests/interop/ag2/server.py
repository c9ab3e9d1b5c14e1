"""A scripted AG2 agent behind its own adapter of AG-UI: `python server.py PORT [proof]`.

`make interop-all` installs it. The agent's loop, its tools, approvals and the wire are AG2's; only the model is ours.
The last words of the user say which scene is played. `proof`: answers must carry the proof of their question.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import httpx
import openai
import uvicorn
from ag2 import Agent, Context, tool
from ag2.ag_ui import AGUIStream
from ag2.config import LLMClient, ModelConfig
from ag2.events import (
    ModelMessage,
    ModelMessageChunk,
    ModelRequest,
    ModelResponse,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResultsEvent,
)
from ag2.middleware import approval_required
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route


def call(name: str, arguments: str) -> ModelResponse:
    return ModelResponse(tool_calls=ToolCallsEvent([ToolCallEvent(id=f"call_{name}", name=name, arguments=arguments)]))


class Model(LLMClient):
    async def __call__(self, messages: Sequence[Any], context: Context, **kwargs: Any) -> ModelResponse:
        last = messages[-1]
        if isinstance(last, ToolResultsEvent):
            results = [str(part.content) for result in last.results for part in result.result.parts]
            return await self._say(f"It says: {', '.join(results)}.", context)
        scene = [part.content for m in messages if isinstance(m, ModelRequest) for part in m.parts][-1]
        match scene:
            case "wipe":
                return call("wipe", '{"path": "/tmp/x"}')
            case "book":
                return call("book", "{}")
            case "full":
                error = {"message": "The model is full.", "code": "rate_limit_exceeded"}
                response = httpx.Response(429, request=httpx.Request("POST", "http://model"))
                raise openai.RateLimitError(f"Error code: 429 - { ({'error': error}) }", response=response, body=error)
        return await self._say(f"You said: {scene}", context)

    async def _say(self, text: str, context: Context) -> ModelResponse:
        for piece in (text[:4], text[4:]):
            await context.send(ModelMessageChunk(piece))
        message = ModelMessage(text)
        await context.send(message)
        return ModelResponse(message)


class Config(ModelConfig):
    provider = "openai"
    model = "scripted"

    def copy(self) -> Config:
        return self

    def create(self) -> Model:
        return Model()

    def create_files_client(self) -> Any:
        raise NotImplementedError


@tool(middleware=[approval_required()])
def wipe(path: str) -> str:
    """Wipe a path."""
    return f"wiped {path}"


@tool
async def book(context: Context) -> str:
    """Book a trip."""
    return f"booked {await context.input('Which city?')}"


async def health(request: Request) -> Response:
    return JSONResponse({"ok": True})


if __name__ == "__main__":
    agent = Agent("helper", config=Config(), tools=[wipe, book])
    stream = AGUIStream(agent, require_resume_proof="proof" in sys.argv)
    app = Starlette(routes=[Route("/agent", stream.build_asgi()), Route("/health", health)])
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
