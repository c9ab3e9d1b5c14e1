"""The agents behind the front in these tests: one function, which the text of the prompt tells what to do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from bridge.errors import BridgeError, ErrorCode
from bridge.model import (
    Custom,
    Data,
    Event,
    FinishReason,
    Inline,
    Interrupted,
    Media,
    MediaKind,
    Part,
    Raw,
    Reasoning,
    Request,
    RunFinished,
    StateChanged,
    Text,
    ToolCall,
    ToolResult,
    Url,
    UsageReported,
    result_text,
)
from bridge.model.events import StateOp

SEEN: list[Request] = []
"""The requests that the agent got, oldest first."""
GATE: dict[str, asyncio.Event] = {}
"""What a run waits for after it has said so."""

QUESTIONS: dict[str, Interrupted] = {
    "approve": Interrupted("q1", "approval", {"message": "May I write?"}, "c1"),
    "own": Interrupted(
        "q1",
        "tool_call",
        {
            "message": "Run it?",
            "options": [
                {"optionId": "always", "name": "Always", "kind": "allow_always"},
                {"optionId": "once", "name": "Once", "kind": "allow_once"},
                {"optionId": "no", "name": "No", "kind": "reject_once"},
            ],
        },
        "c1",
    ),
    "free": Interrupted("q1", "input_required", {"message": "Which colour?"}),
    "form": Interrupted(
        "q1",
        "input_required",
        {
            "message": "Where to?",
            "responseSchema": {
                "type": "object",
                "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
                "required": ["city", "days"],
            },
        },
    ),
    "yesno": Interrupted("q1", "input_required", {"message": "Sure?", "responseSchema": {"type": "boolean"}}),
    "deep": Interrupted(
        "q1",
        "input_required",
        {
            "message": "Tell me all.",
            "responseSchema": {"type": "object", "properties": {"a": {"type": "object"}}, "required": ["a"]},
        },
    ),
}


async def agent(request: Request) -> AsyncIterator[Event | Part | str]:
    """Answer by the last word of the last message."""
    SEEN.append(request)
    last = request.messages[-1].parts if request.messages else []
    said = result_text([part for part in last if isinstance(part, Text)])
    if request.resume:
        answer = request.resume[0]
        if answer.decision == "cancelled" and said:
            yield f"withdrawn, then {said}"
            return
        asked = [part for message in request.messages for part in message.parts if isinstance(part, ToolCall)]
        if asked and answer.agrees and answer.payload != {"optionId": "no"}:
            yield ToolResult("c1", [Text("written")])
        yield f"{answer.decision} {answer.payload}"
        yield UsageReported(5, 3, 8)
        return
    word, _, rest = said.partition(" ") if said != "like an agent" else (said, "", "")
    async for item in _scene(word, rest, request):
        yield item


async def _scene(word: str, rest: str, request: Request) -> AsyncIterator[Any]:
    match word:
        case "think":
            yield Reasoning("Let me think.", signature="secret")
            yield "42"
            yield UsageReported(10, 4, 14, cached=2, reasoning=1)
        case "tool" | "toolfail":
            yield ToolCall("c1", "read_file", '{"path":"a.txt"}')
            yield ToolResult("c1", [Text('{"lines":3}')], "read_file", is_error=word == "toolfail")
            yield "It has three lines."
        case "leftcall":
            yield ToolCall("c1", "read_file", '{"path":"a.txt"}')
            yield RunFinished(FinishReason.TOOL_CALLS)
        case "untold":
            yield ToolCall("c1", "bash", "{}")
            yield "Done."
        case "ask":
            asked = QUESTIONS[rest]
            if asked.call_id:
                yield ToolCall(asked.call_id, "write_file", '{"path":"a.txt"}')
            yield asked
        case "twice":
            yield Interrupted("q1", "approval", {"message": "First?"})
            yield Interrupted("q2", "approval", {"message": "Second?"})
        case "media":
            yield Media(MediaKind.IMAGE, Inline("aGk="), "image/png")
            yield Media(MediaKind.AUDIO, Inline("aGk="), "audio/wav")
            yield Media(MediaKind.FILE, Url("https://example.test/a.pdf"), "application/pdf", "a.pdf")
            yield Data({"a": 1})
        case "state":
            yield StateChanged(StateOp.SNAPSHOT, {"a": 1})
            yield Custom("own", 1)
            yield "ok"
        case "like an agent":
            yield Raw("acp", {"sessionUpdate": "plan", "entries": [{"content": "Look", "status": "pending"}]})
            yield ToolCall("c1", "bash", '{"command":"ls"}')
            yield ToolResult("c1", [Data({"path": "/a.txt", "oldText": None, "newText": "x"})])
        case "end":
            yield "half"
            yield RunFinished(FinishReason(rest))
        case "fail":
            yield ToolCall("c1", "bash", "{}")
            raise BridgeError("It broke for sk-secret0123456789abcdef.", code=ErrorCode(rest))
        case "slow":
            yield ToolCall("c1", "bash", "{}")
            yield "first"
            GATE.setdefault("begun", asyncio.Event()).set()
            await GATE.setdefault("go", asyncio.Event()).wait()
            yield "second"
        case _:
            yield f"{len(request.messages)}: {word} {rest}".rstrip()
