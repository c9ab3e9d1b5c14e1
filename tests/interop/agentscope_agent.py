"""A scripted agent in the real AgentScope runtime: `python agentscope_agent.py PORT`, as `make interop` installs it.

The last message says which scene is played. `GET /left/{session}` answers when the scene `wait` of that session was
cancelled, and not before. `POST /stop` is the endpoint that the runtime's documentation has applications add.
"""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from agentscope.message import Msg, TextBlock, ThinkingBlock, ToolResultBlock, ToolUseBlock
from agentscope_runtime.engine import AgentApp

app = AgentApp(app_name="scripted", enable_stream_task=True)
left: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)
Yielded = tuple[Msg, bool]

WEATHER = ToolUseBlock(type="tool_use", id="call_1", name="get_weather", input={"city": "Paris"})


def growing(blocks: list[Any], *pieces: str) -> list[Yielded]:
    """The same message told again and again, each time with more text: so the real agents stream."""
    message = Msg("friday", "", "assistant")
    out, said = [], ""
    for piece in pieces:
        said += piece
        told = Msg("friday", [*blocks, TextBlock(type="text", text=said)], "assistant")
        told.id = message.id
        out.append((told, False))
    return [*out, (out[-1][0], True)]


def thinking(*pieces: str) -> list[Yielded]:
    out, thought = [], ""
    message = Msg("friday", "", "assistant")
    for piece in pieces:
        thought += piece
        told = Msg("friday", [ThinkingBlock(type="thinking", thinking=thought)], "assistant")
        told.id = message.id
        out.append((told, False))
    return [*out, (out[-1][0], True)]


@app.query(framework="agentscope")
async def query(self: Any, msgs: list[Msg], request: Any = None, **_: Any) -> AsyncIterator[Yielded]:
    blocks = msgs[-1].get_content_blocks()
    results = [b for b in blocks if b["type"] == "tool_result"]
    scene = "result" if results else (msgs[-1].get_text_content() or "").strip()
    events: list[Yielded] = []
    match scene:
        case "result":
            output = results[-1]["output"]
            told = output if isinstance(output, str) else "".join(b.get("text", "") for b in output)
            events = growing([], "It is ", told, ".")
        case "think":
            events = [*thinking("Hm, ", "hm."), *growing([], "Six times seven ", "is 42.")]
        case "tool":
            result = ToolResultBlock(
                type="tool_result", id="call_1", name="get_weather", output=[TextBlock(type="text", text="sunny")]
            )
            events = [
                (Msg("friday", [WEATHER], "assistant"), True),
                (Msg("system", [result], "system"), True),
                *growing([], "It is ", "sunny."),
            ]
        case "ask":
            events = [(Msg("friday", [WEATHER], "assistant"), True)]
        case "error":
            events = growing([], "half ", "an answer")[:-1]
        case "wait":
            events = growing([], "I am ", "waiting")[:-1]
        case "look":
            events = growing([], "I see: ", ", ".join(b["type"] for b in blocks))
        case _:
            events = growing([], "You ", "said: ", scene, " \u2028 你好 🙂")
    for event in events:
        yield event
    if scene == "error":
        raise ValueError("the model fell over")
    if scene == "wait":
        try:
            await asyncio.Event().wait()
        finally:
            left[request.session_id].set()


@app.get("/left/{session}")
async def was_left(session: str) -> dict[str, bool]:
    await left[session].wait()
    return {"left": True}


@app.post("/stop")
async def stop(request: dict[str, Any]) -> dict[str, str]:
    await app.stop_chat(user_id=request.get("user_id"), session_id=request.get("session_id"))
    return {"status": "success", "message": "Interrupt signal broadcasted."}


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
