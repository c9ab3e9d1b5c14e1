"""The real agent service of AgentScope 2, a scripted model: `python agentscope2_service.py PORT FOLDER [REDIS_URL]`.

The last message of the user says which scene the model plays; after the results of tools it repeats them. Its storage
is SQLite and its message bus in memory; with a Redis both are there. `GET /began/{scene}` and `GET /left/{scene}`
answer when a model call that waits has begun, and when it was left; `GET /go/{scene}` ends the wait of one that pauses.
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any, ClassVar
from urllib.parse import urlsplit

import uvicorn
from agentscope.app import create_app
from agentscope.app.message_bus import InMemoryMessageBus, RedisMessageBus
from agentscope.app.storage import AsyncSQLAlchemyStorage, RedisStorage
from agentscope.app.workspace_manager import LocalWorkspaceManager
from agentscope.message import TextBlock
from agentscope.permission import PermissionBehavior, PermissionDecision
from agentscope.tool import FunctionTool, ToolBase, ToolChunk
from fastapi import Request
from fastapi.responses import JSONResponse, StreamingResponse

PORT, FOLDER = int(sys.argv[1]), sys.argv[2]
REDIS = sys.argv[3] if len(sys.argv) > 3 else None
CALLS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "tool": [("get_weather", {"city": "Paris"})],
    "two": [("get_weather", {"city": "Paris"}), ("get_weather", {"city": "Oslo"})],
    "external": [("client_clock", {"zone": "UTC"})],
    "ask": [("send_mail", {"to": "bob"})],
    "both": [("client_clock", {"zone": "UTC"}), ("send_mail", {"to": "bob"})],
}
began: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
left: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
told: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)


def get_weather(city: str) -> ToolChunk:
    """The weather of a city."""
    return ToolChunk(content=[TextBlock(text=f"{city}: sunny")])


def send_mail(to: str) -> ToolChunk:
    """Sends a mail."""
    return ToolChunk(content=[TextBlock(text=f"sent to {to}")])


class Clock(ToolBase):
    """A tool that the caller runs."""

    name = "client_clock"
    description = "The time where the caller is."
    input_schema: ClassVar[dict[str, Any]] = {"type": "object", "properties": {"zone": {"type": "string"}}}
    is_concurrency_safe = True
    is_read_only = True
    is_external_tool = True

    async def check_permissions(self, *_: Any, **__: Any) -> PermissionDecision:
        return PermissionDecision(behavior=PermissionBehavior.ALLOW, message="")


async def tools(user: str, agent: str, session: str) -> list[ToolBase]:
    allowed = PermissionDecision(behavior=PermissionBehavior.ALLOW, message="")
    return [FunctionTool(get_weather, permission=allowed), FunctionTool(send_mail), Clock()]


if REDIS:
    place = urlsplit(REDIS)
    where: dict[str, Any] = {"host": place.hostname, "port": place.port, "password": place.password}
    storage, bus = RedisStorage(**where), RedisMessageBus(**where)
else:
    storage, bus = AsyncSQLAlchemyStorage(f"sqlite+aiosqlite:///{FOLDER}/service.db"), InMemoryMessageBus()
app = create_app(storage, bus, LocalWorkspaceManager(f"{FOLDER}/workspaces"), extra_agent_tools=tools)


def words(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content if part["type"] == "text")


def is_asked(message: dict[str, Any]) -> bool:
    """Said by the user, and not whispered by the service."""
    role = message["role"]
    return role == "tool" or (role == "user" and not words(message).startswith("<system-reminder>"))


@app.post("/v1/chat/completions")
async def complete(request: Request) -> Any:
    body = await request.json()
    asked = [m for m in body["messages"] if is_asked(m)]
    scene = words(asked[-1]).strip()
    if asked[-1]["role"] == "user" and scene == "error":
        return JSONResponse({"error": {"message": "the model fell over", "type": "invalid_request_error"}}, 400)
    return StreamingResponse(played(body, asked, scene), media_type="text/event-stream")


def said(**delta: Any) -> bytes:
    return chunk({"index": 0, "delta": delta, "finish_reason": None})


def chunk(choice: dict[str, Any] | None, **more: Any) -> bytes:
    choices = [choice] if choice else []
    whole = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": choices,
        **more,
    }
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


async def played(body: dict[str, Any], asked: list[dict[str, Any]], scene: str) -> AsyncIterator[bytes]:
    finish = "stop"
    if asked[-1]["role"] == "tool":
        results = [m for m in body["messages"][last_user(body["messages"]) :] if m["role"] == "tool"]
        yield said(content="Tools said: ")
        yield said(content=" / ".join(words(m) for m in results))
    elif scene in CALLS:
        finish = "tool_calls"
        for index, (name, arguments) in enumerate(CALLS[scene]):
            text = json.dumps(arguments)
            head = {"index": index, "id": f"call_{index + 1}", "type": "function"}
            yield said(tool_calls=[{**head, "function": {"name": name, "arguments": ""}}])
            for piece in (text[:5], text[5:]):
                yield said(tool_calls=[{"index": index, "function": {"arguments": piece}}])
    elif scene == "think":
        for piece in ("Hm, ", "hm."):
            yield said(reasoning_content=piece)
        for piece in ("Six times seven ", "is 42."):
            yield said(content=piece)
    elif scene.startswith("wait"):
        yield said(content="I am waiting")
        began[scene].set()
        try:
            await asyncio.Event().wait()
        finally:
            left[scene].set()
    elif scene.startswith("pause"):
        yield said(content="One, ")
        began[scene].set()
        await told[scene].wait()
        yield said(content="two.")
    elif scene == "heard":
        heard = [f"{m['role']}: {words(m)}" for m in body["messages"] if m["role"] == "assistant" or is_asked(m)]
        yield said(content=" | ".join(heard[:-1]))
    elif scene == "look":
        last = asked[-1]["content"]
        yield said(content="I see: " + ", ".join(part["type"] for part in last))
    else:
        for piece in ("You ", "said: ", scene, " 你好 🙂"):
            yield said(content=piece)
    yield chunk({"index": 0, "delta": {}, "finish_reason": finish})
    usage = {
        "prompt_tokens": 11,
        "completion_tokens": 7,
        "total_tokens": 18,
        "prompt_tokens_details": {"cached_tokens": 3},
    }
    yield chunk(None, usage=usage)
    yield b"data: [DONE]\n\n"


def last_user(messages: list[dict[str, Any]]) -> int:
    return max(n for n, m in enumerate(messages) if m["role"] == "user" and is_asked(m))


@app.get("/began/{scene}")
async def has_begun(scene: str) -> dict[str, bool]:
    await began[scene].wait()
    return {"began": True}


@app.get("/left/{scene}")
async def was_left(scene: str) -> dict[str, bool]:
    await left[scene].wait()
    return {"left": True}


@app.get("/go/{scene}")
async def go_on(scene: str) -> dict[str, bool]:
    told[scene].set()
    return {"told": True}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=PORT, log_level="warning")
